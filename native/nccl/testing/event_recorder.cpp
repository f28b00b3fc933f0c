// A profiler plugin of version 5 that writes down what it is told, to be chained behind libargus_nccl: fixtures of a
// real NCCL. RECORD_NCCL_EVENTS names the file, one JSON object a line, written when the process exits.

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi.hpp"

namespace {

using namespace argus::nccl;

struct Record {
  std::uint64_t ns, type, sequence, count, parent;
  long thread;
  std::uint64_t event;  ///< number of the event, from 1 on
  std::uint64_t communicator;
  int state, peer, step;
  char call;  ///< s: start, r: record, e: stop
  char function[24];
};
constexpr std::uint64_t kMost = 1 << 17;
Record records[kMost];
std::uint64_t used;

Record& next(char call) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::uint64_t at = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
  Record& record = records[at < kMost ? at : kMost - 1];
  record.ns = static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
  record.thread = syscall(SYS_gettid);
  record.call = call;
  return record;
}

void write_all() {
  const char* path = std::getenv("RECORD_NCCL_EVENTS");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  for (std::uint64_t at = 0; at < used && at < kMost; ++at) {
    const Record& one = records[at];
    std::fprintf(file,
                 "{\"call\": \"%c\", \"ns\": %lu, \"thread\": %ld, \"event\": %lu, \"parent\": %lu, \"communicator\": %lu, "
                 "\"type\": %lu, \"state\": %d, \"function\": \"%s\", \"sequence\": %lu, \"count\": %lu, \"peer\": %d, "
                 "\"step\": %d}\n",
                 one.call, one.ns, one.thread, one.event, one.parent, one.communicator, one.type, one.state, one.function,
                 one.sequence, one.count, one.peer, one.step);
  }
  std::fclose(file);
}

Result init(void** context, std::uint64_t hash, int* mask, const char*, int, int, int, Logger) {
  static const int registered = std::atexit(write_all);
  (void)registered;
  *mask = kColl | kP2p | kProxyStep | kKernelLaunch;
  *context = reinterpret_cast<void*>(hash | 1U);
  return kSuccess;
}

Result start(void* context, void** handle, void* given) {
  const auto& descriptor = *static_cast<const DescriptorV5*>(given);
  Record& record = next('s');
  record.event = static_cast<std::uint64_t>(&record - records) + 1;
  record.communicator = reinterpret_cast<std::uintptr_t>(context);
  record.parent = reinterpret_cast<std::uintptr_t>(descriptor.parentObj);
  record.type = descriptor.type;
  const char* function = nullptr;
  if (descriptor.type == kColl) {
    function = descriptor.coll.func;
    record.sequence = descriptor.coll.seqNumber;
    record.count = descriptor.coll.count;
  } else if (descriptor.type == kP2p) {
    function = descriptor.p2p.func;
    record.count = descriptor.p2p.count;
    record.peer = descriptor.p2p.peer;
  } else if (descriptor.type == kProxyOp) {
    record.peer = descriptor.proxyOp.peer;
  } else if (descriptor.type == kProxyStep) {
    record.step = descriptor.proxyStep.step;
  }
  if (function) std::snprintf(record.function, sizeof record.function, "%s", function);
  *handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(record.event));
  return kSuccess;
}

Result stop(void* handle) {
  next('e').event = reinterpret_cast<std::uintptr_t>(handle);
  return kSuccess;
}

Result record_state(void* handle, int state, void*) {
  Record& record = next('r');
  record.event = reinterpret_cast<std::uintptr_t>(handle);
  record.state = state;
  return kSuccess;
}

Result finalize(void*) { return kSuccess; }

}  // namespace

extern "C" const TableV5 ncclProfiler_v5;
extern "C" const TableV5 ncclProfiler_v5 = {"event recorder", init, start, stop, record_state, finalize};
