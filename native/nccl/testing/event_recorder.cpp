// A profiler plugin of version 5 that writes down what it is told, to be chained behind libargus_nccl: fixtures of a
// real NCCL. RECORD_NCCL_EVENTS names the file, one JSON object a line, written when the process exits;
// RECORD_NCCL_KERNELS asks for the channels of kernels too, as the GPU's clock tells them.

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
  std::uint64_t ns, type, sequence, count, parent, group;
  std::uint64_t argument;  ///< of a state: bytes of a step, or the GPU's clock
  long thread;
  std::uint64_t event;  ///< number of the event, from 1 on
  std::uint64_t communicator;
  int rank, state, peer, channel, step, steps, sends;
  char call;  ///< s: start, r: record, e: stop
  char function[24], datatype[16];
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
                 "\"step\": %d, \"steps\": %d, \"sends\": %d, \"channel\": %d, \"rank\": %d, \"group\": %lu, "
                 "\"datatype\": \"%s\", \"argument\": %lu}\n",
                 one.call, one.ns, one.thread, one.event, one.parent, one.communicator, one.type, one.state, one.function,
                 one.sequence, one.count, one.peer, one.step, one.steps, one.sends, one.channel, one.rank, one.group,
                 one.datatype, one.argument);
  }
  std::fclose(file);
}

Result init(void** context, std::uint64_t hash, int* mask, const char*, int, int, int, Logger) {
  static const int registered = std::atexit(write_all);
  (void)registered;
  *mask = kColl | kP2p | kProxyStep | kKernelLaunch;
  if (std::getenv("RECORD_NCCL_KERNELS")) *mask |= kKernelCh;
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
  record.rank = descriptor.rank;
  const char* function = nullptr;
  const char* datatype = nullptr;
  if (descriptor.type == kColl) {
    function = descriptor.coll.func;
    record.sequence = descriptor.coll.seqNumber;
    record.count = descriptor.coll.count;
    record.channel = descriptor.coll.nChannels;
    record.group = reinterpret_cast<std::uintptr_t>(descriptor.coll.parentGroup);
    datatype = descriptor.coll.datatype;
  } else if (descriptor.type == kP2p) {
    function = descriptor.p2p.func;
    record.count = descriptor.p2p.count;
    record.peer = descriptor.p2p.peer;
    record.channel = descriptor.p2p.nChannels;
    record.group = reinterpret_cast<std::uintptr_t>(descriptor.p2p.parentGroup);
    datatype = descriptor.p2p.datatype;
  } else if (descriptor.type == kProxyOp) {
    record.peer = descriptor.proxyOp.peer;
    record.channel = descriptor.proxyOp.channelId;
    record.steps = descriptor.proxyOp.nSteps;
    record.sends = descriptor.proxyOp.isSend;
  } else if (descriptor.type == kProxyStep) {
    record.step = descriptor.proxyStep.step;
  } else if (descriptor.type == kKernelCh) {
    record.channel = descriptor.kernelCh.channelId;
    record.argument = descriptor.kernelCh.pTimer;
  }
  if (datatype) std::snprintf(record.datatype, sizeof record.datatype, "%s", datatype);
  if (function) std::snprintf(record.function, sizeof record.function, "%s", function);
  *handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(record.event));
  return kSuccess;
}

Result stop(void* handle) {
  next('e').event = reinterpret_cast<std::uintptr_t>(handle);
  return kSuccess;
}

Result record_state(void* handle, int state, void* arguments) {
  Record& record = next('r');
  record.event = reinterpret_cast<std::uintptr_t>(handle);
  record.state = state;
  if (arguments) record.argument = static_cast<const Arguments*>(arguments)->pTimer;
  return kSuccess;
}

Result finalize(void*) { return kSuccess; }

}  // namespace

extern "C" const TableV5 ncclProfiler_v5;
extern "C" const TableV5 ncclProfiler_v5 = {"event recorder", init, start, stop, record_state, finalize};
