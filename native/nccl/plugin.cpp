// The tables that NCCL looks for, and what stands behind them. NCCL reads them by dlsym from the library that
// NCCL_PROFILER_PLUGIN names, and calls the newest that it knows.
//
// init and finalize run once a communicator and may allocate; the others never do. Each answers success: NCCL up to
// 2.27 switches the profiler off for good where init fails, and later ones unload a library that is in use.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "abi.hpp"
#include "event.hpp"
#include "former.hpp"
#include "host.hpp"
#include "memory.hpp"
#include "observer.hpp"
#include "settings_table.hpp"
#include "variables.hpp"

namespace argus::nccl {
namespace {

/// Everything of the process: never destroyed, and zero until the first init.
struct Plugin {
  std::mutex beginning;
  bool begun = false;  ///< under `beginning`
  int table = 0;
  Choice choice;
  Observer observer;
  Former former;
  page::Header* shown = nullptr;
  std::atomic<int*> mask{nullptr};
  std::atomic<bool> watches{true};
};

Plugin plugin;
std::atomic<bool> in_forked_child{false};
/// Where nothing is to be shown: declined, but there is a former plugin.
alignas(page::kHeaderBytes) char unshown[page::kSize];

/// The child shares the memory with its parent, and has no CUDA.
void after_fork_in_child() { in_forked_child.store(true, std::memory_order_relaxed); }

bool silent() noexcept { return in_forked_child.load(std::memory_order_relaxed); }

/// Tells our contexts and handles from those of other processes, whose numbers may reach us.
std::uint16_t random_tag() noexcept {
  std::uint16_t tag = 0;
  if (syscall(SYS_getrandom, &tag, sizeof tag, 1 /* does not wait */) != sizeof tag)
    tag = static_cast<std::uint16_t>(now_ns() ^ static_cast<std::uint64_t>(getpid()));
  return tag ? tag : std::uint16_t{1};
}

/// Tells the library that sees the kernels where the launches lie, and whether more are to come, if it is in this process
/// too: CUDA has loaded it before NCCL comes up.
void show_launches(bool on) noexcept {
  if (!(plugin.choice.mask & kKernelLaunch)) return;
  plugin.observer.launches().watch(on);
  void* const injector = dlopen("libargus_cupti.so", RTLD_NOW | RTLD_NOLOAD);
  auto* take = reinterpret_cast<int (*)(const void*, int)>(
      injector ? dlsym(injector, "argus_cupti_nccl_launches") : nullptr);
  if (take) take(&plugin.observer.launches(), LaunchRing::kInterface);
}

/// The first init of the process. `address`: within the NCCL that calls.
void begin(int table, const void* address) {
  const Host host = host_of(address);
  plugin.table = table;
  plugin.choice = choose(host, table, value_of(table::kNcclEvents) == 0);
  if (value_of(table::kDisable))
    plugin.choice = {0, page::Reason::kDisabled};
  else if (!value_of(table::kNccl))
    plugin.choice = {0, page::Reason::kNotAskedFor};
  Memory memory = Memory::map(value_of(table::kNcclPage));
  plugin.shown = memory.header;
  if (!memory.header && plugin.choice.mask) plugin.choice = {0, page::Reason::kNoMemory};
  if (!plugin.choice.mask)
    memory = {reinterpret_cast<page::Header*>(unshown), reinterpret_cast<page::Communicator*>(unshown + page::kHeaderBytes)};
  plugin.observer.begin(memory, random_tag());
  const page::Former former = plugin.former.load(value_of(table::kNextProfiler), table);
  if (page::Header* header = plugin.shown) {
    header->version = page::kVersion;
    header->pid = static_cast<std::uint32_t>(getpid());
    header->state = static_cast<std::uint32_t>(plugin.choice.mask ? page::State::kWatching : page::State::kDeclined);
    header->reason = static_cast<std::uint32_t>(plugin.choice.reason);
    header->nccl_version = static_cast<std::uint32_t>(host.version);
    header->table = static_cast<std::uint32_t>(table);
    header->mask = plugin.choice.mask;
    header->former = static_cast<std::uint32_t>(former);
    header->started_ns = now_ns();
    __atomic_store_n(&header->magic, page::kMagic, __ATOMIC_RELEASE);
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  show_launches(plugin.watches.load(std::memory_order_relaxed));
  if (!value_of(table::kDebug)) return;
  say("NCCL " + std::to_string(host.version) + " calls libargus_nccl by version " + std::to_string(table) +
      " of its interface; events asked for: " + std::to_string(plugin.choice.mask));
}

/// The types of events that NCCL is to send: ours and those of the former plugin.
void refresh_mask() noexcept {
  int* const mask = plugin.mask.load(std::memory_order_relaxed);
  if (!mask) return;
  const std::uint32_t ours = plugin.watches.load(std::memory_order_relaxed) ? plugin.choice.mask : 0;
  const int wanted = static_cast<int>(ours | (plugin.former.there() ? plugin.former.mask() : 0));
  if (load(*mask) != wanted) store(*mask, wanted);
}

Result init(int table, void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
            Logger logger, const void* caller) noexcept {
  if (context) *context = nullptr;
  if (!context || !mask || silent()) return kSuccess;
  try {
    const std::lock_guard<std::mutex> alone(plugin.beginning);
    if (!plugin.begun) begin(table, logger ? reinterpret_cast<const void*>(logger) : caller);
    plugin.begun = true;
  } catch (...) {
    plugin.begun = true;
    if (!plugin.shown) plugin.choice = {};  // nothing to count in: without events
  }
  plugin.mask.store(mask, std::memory_order_relaxed);
  const bool chains = plugin.former.there() && table == plugin.table;
  if (plugin.choice.mask || chains) {
    if (Communicator* const opened = plugin.observer.open(name, hash, nodes, ranks, rank)) {
      *context = plugin.observer.context_of(*opened);
      if (chains && !plugin.former.open(*opened, name, hash, nodes, ranks, rank, logger)) {
        say("the profiler plugin of ARGUS_NEXT_PROFILER failed in its init; going on without it");
        if (plugin.shown) store(plugin.shown->former, static_cast<std::uint32_t>(page::Former::kFailed));
      }
    }
  }
  refresh_mask();
  return kSuccess;
}

Result finalize(void* context) noexcept {
  if (silent()) return kSuccess;
  if (Communicator* const communicator = plugin.observer.communicator(context)) {
    if (communicator->chained) plugin.former.close(*communicator);
    plugin.observer.close(*communicator);
  }
  return kSuccess;
}

/// The former plugin's handle behind one of ours; null where it has none.
void* theirs_of(const void* handle) noexcept {
  if (const Slot* const slot = plugin.observer.slot(handle)) return load(slot->theirs);
  if (const Operation* const operation = plugin.observer.operation(handle)) return load(operation->theirs);
  void** const step = plugin.observer.step_theirs(handle);
  return step ? load(*step) : nullptr;
}

void pass_on(Communicator& communicator, const Event& event, void* handle, void* descriptor) noexcept {
  if (!plugin.former.wants(event.type)) return;
  void* const theirs = plugin.former.start(communicator, event, descriptor, plugin.table, theirs_of(event.parent),
                                           theirs_of(event.parent_group));
  if (Slot* const slot = plugin.observer.slot(handle))
    store(slot->theirs, theirs);
  else if (Operation* const operation = plugin.observer.operation(handle))
    store(operation->theirs, theirs);
  else if (void** const step = plugin.observer.step_theirs(handle))
    store(*step, theirs);
}

template <class Descriptor>
Result start(void* context, void** handle, void* descriptor) noexcept {
  if (!handle) return kSuccess;
  *handle = nullptr;  // NCCL may come with garbage in it
  if (!descriptor || silent()) return kSuccess;
  Communicator* const communicator = plugin.observer.communicator(context);
  if (!communicator) {
    if (context && plugin.begun) add(plugin.observer.header().foreign_events, std::uint64_t{1});
    return kSuccess;
  }
  const auto& given = *static_cast<const Descriptor*>(descriptor);
  const bool step = given.type == kProxyStep;
  if (step) {
    *handle = plugin.observer.start_step(given.parentObj, given.proxyStep.step);
    if (!communicator->chained) return kSuccess;
  }
  Event event;
  decode(given, event);
  if (!step) *handle = plugin.observer.start(*communicator, event, communicator->chained);
  if (!communicator->chained) return kSuccess;
  if (event.type & (kColl | kP2p | kGroup | kCollApi | kP2pApi | kGroupApi)) refresh_mask();
  if (*handle)
    pass_on(*communicator, event, *handle, descriptor);
  else
    add(plugin.observer.header().former_dropped_events, std::uint64_t{1});
  return kSuccess;
}

Result stop(void* handle) noexcept {
  if (!handle || silent() || !plugin.observer.ours(handle)) return kSuccess;
  if (plugin.former.version())
    if (void* const theirs = theirs_of(handle)) plugin.former.stop(theirs);
  plugin.observer.stop(handle);
  return kSuccess;
}

template <int table>
Result record(void* handle, int state, void* arguments) noexcept {
  if (!handle || silent() || !plugin.observer.ours(handle)) return kSuccess;
  if (plugin.former.version())
    if (void* const theirs = theirs_of(handle)) plugin.former.record(theirs, state, arguments, table);
  std::uint64_t bytes = 0;
  if (table >= 4 && arguments) bytes = static_cast<const Arguments*>(arguments)->transSize;
  plugin.observer.record(handle, state, bytes);
  return kSuccess;
}

template <int table>
Result init_v1(void** context, int* mask) noexcept {
  return init(table, context, mask, nullptr, 0, 0, 0, 0, nullptr, __builtin_return_address(0));
}

Result init_v4(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
               Logger logger) noexcept {
  return init(4, context, mask, name, hash, nodes, ranks, rank, logger, __builtin_return_address(0));
}

template <int table>
Result init_v5(void** context, std::uint64_t hash, int* mask, const char* name, int nodes, int ranks, int rank,
               Logger logger) noexcept {
  return init(table, context, mask, name, hash, nodes, ranks, rank, logger, __builtin_return_address(0));
}

template <int table, class Descriptor, class Table, class Init>
constexpr Table made(Init begin_with) {
  return {"argus", begin_with, start<Descriptor>, stop, record<table>, finalize};
}

}  // namespace
}  // namespace argus::nccl

/// 0: no event more is asked of NCCL for ARGUS until 1; those that have begun are told to their end. Any thread. The
/// overhead is measured so, by turns within one process (bench/gpu_day/toggle.py).
extern "C" __attribute__((visibility("default"))) void argus_nccl_watch(int on) {
  argus::nccl::plugin.watches.store(on != 0, std::memory_order_relaxed);
  argus::nccl::show_launches(on != 0);
  argus::nccl::refresh_mask();
}

#define ARGUS_EXPORT(version, Table, Descriptor, init)                                   \
  extern "C" __attribute__((visibility("default"))) const argus::nccl::Table ncclProfiler_v##version; \
  extern "C" const argus::nccl::Table ncclProfiler_v##version =                         \
      argus::nccl::made<version, argus::nccl::Descriptor, argus::nccl::Table>(argus::nccl::init)
ARGUS_EXPORT(1, TableV1, DescriptorV1, init_v1<1>);
ARGUS_EXPORT(2, TableV1, DescriptorV2, init_v1<2>);
ARGUS_EXPORT(3, TableV1, DescriptorV3, init_v1<3>);
ARGUS_EXPORT(4, TableV4, DescriptorV4, init_v4);
ARGUS_EXPORT(5, TableV5, DescriptorV5, init_v5<5>);
ARGUS_EXPORT(6, TableV5, DescriptorV5, init_v5<6>);
ARGUS_EXPORT(7, TableV5, DescriptorV5, init_v5<7>);
