#include "launches.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace argus::nccl {
namespace {

/// Of the thread. In the static block: the first use of any other would allocate.
struct Thread {
  std::uint32_t system = 0;     ///< its number; 0: not asked yet
  std::uint32_t launch = 0;     ///< the last launch, until what it does has been told; 0: none
  std::uint32_t slot = 0;       ///< its communicator
  std::uint32_t launching = 0;  ///< the launch whose call has not returned
  bool telling = false;         ///< within the group of events that says what the launch does
};
__attribute__((tls_model("initial-exec"))) thread_local Thread thread;

/// The clock of CUPTI's records, unless somebody gave it another (injector/clock.hpp).
std::uint64_t realtime_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

void Launches::start(const Event& event, std::uint32_t slot, std::uint32_t generation) noexcept {
  switch (event.type) {
    case kKernelLaunch:
      begin(slot, generation);
      break;
    case kGroup:  // the next one after a launch, on its thread, is what the launch does
      thread.telling = thread.launch && thread.slot == slot;
      if (!thread.telling) thread.launch = 0;
      break;
    case kColl:
    case kP2p:
      if (thread.telling && thread.slot == slot) tell(event);
      break;
    default:
      break;
  }
}

void Launches::begin(std::uint32_t slot, std::uint32_t generation) noexcept {
  if (!thread.system) thread.system = static_cast<std::uint32_t>(syscall(SYS_gettid));
  Launch launch;
  launch.thread = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pthread_self()));
  launch.system_thread = thread.system;
  launch.slot = slot;
  launch.generation = generation;
  launch.begin_ns = realtime_ns();
  ring_.add(launch);
  thread.launch = thread.launching = launch.number;
  thread.slot = slot;
  thread.telling = false;
}

void Launches::tell(const Event& event) noexcept {
  Launch* const launch = ring_.find(thread.launch);
  if (!launch) return;
  LaunchedOperation operation;
  operation.function = event.function;
  if (event.type == kColl)
    operation.sequence = static_cast<std::uint32_t>(event.sequence);
  else
    operation.peer = static_cast<std::uint32_t>(event.peer);
  // Of sends and receives one is of the sender, and to itself nothing leaves the GPU.
  const bool moves = event.type == kColl || (static_cast<page::Function>(event.function) == page::Function::kSend &&
                                             event.peer != event.rank);
  ring_.tell(*launch, operation, moves ? event.bytes() : 0);
}

void Launches::stop(std::uint64_t type) noexcept {
  if (type == kKernelLaunch && thread.launching) {
    if (Launch* const launch = ring_.find(thread.launching)) LaunchRing::put(launch->end_ns, realtime_ns());
    thread.launching = 0;
  } else if (type == kGroup && thread.telling) {
    if (Launch* const launch = ring_.find(thread.launch)) LaunchRing::put(launch->told, 1U);
    thread.launch = 0;
    thread.telling = false;
  }
}

}  // namespace argus::nccl
