// A profiler plugin of one version that was there before ours. It knows only contexts and handles of its own, and
// says at the end of the process what it saw: FORMER_REPORT, one line of JSON. FORMER_MASK is what it asks for;
// FORMER_FAILS: its init answers an error; FORMER_TOGGLES: it asks for nothing from this collective of
// its own on, counted from 1. A step that has stopped is gone: to name it again is as wrong as to name a stranger.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi.hpp"

namespace {

using namespace argus::nccl;
#if VERSION == 1
using Descriptor = DescriptorV1;
#elif VERSION == 2
using Descriptor = DescriptorV2;
#elif VERSION == 3
using Descriptor = DescriptorV3;
#elif VERSION == 4
using Descriptor = DescriptorV4;
#else
using Descriptor = DescriptorV5;
#endif

struct Seen {
  std::uint64_t type;
  long stops, records;
};
constexpr long kMost = 1 << 20;
Seen* seen = static_cast<Seen*>(std::calloc(kMost, sizeof(Seen)));
long events, wrong_contexts, wrong_handles, wrong_parents, orphans, inits, finals, by_type[16], with_name, all_reduces, bytes_sent;
int* mask_pointer;
char context_of_ours;

[[maybe_unused]] long named(const char* name, const char* wanted) { return name && std::strcmp(name, wanted) == 0; }

void add(long& what, long value = 1) { __atomic_fetch_add(&what, value, __ATOMIC_RELAXED); }

bool own(const void* pointer) {
  const auto* one = static_cast<const Seen*>(pointer);
  return one >= seen && one < seen + kMost && one->type;
}

bool there(const void* handle) {
  if (!own(handle)) return false;
  const auto* one = static_cast<const Seen*>(handle);
  return one->type != kProxyStep || !__atomic_load_n(&one->stops, __ATOMIC_RELAXED);
}

void report() {
  const char* path = std::getenv("FORMER_REPORT");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  long unstopped = 0, records = 0;
  for (long at = 0; at < events && at < kMost; ++at) {
    unstopped += seen[at].type && !seen[at].stops;
    records += seen[at].records;
  }
  std::fprintf(file,
               "{\"version\": %d, \"inits\": %ld, \"finals\": %ld, \"events\": %ld, \"records\": %ld, "
               "\"unstopped\": %ld, \"wrong_contexts\": %ld, \"wrong_handles\": %ld, \"wrong_parents\": %ld, "
               "\"orphans\": %ld, \"named\": %ld, \"all_reduces\": %ld, \"sent\": %ld, \"by_type\": [",
               VERSION, inits, finals, events, records, unstopped, wrong_contexts, wrong_handles, wrong_parents, orphans,
               with_name, all_reduces, bytes_sent);
  for (int bit = 0; bit < 16; ++bit) std::fprintf(file, "%s%ld", bit ? ", " : "", by_type[bit]);
  std::fprintf(file, "]}\n");
  std::fclose(file);
}

Result begin(void** context, int* mask) {
  if (std::getenv("FORMER_FAILS")) return 3;
  static const int registered = std::atexit(report);
  (void)registered;
  add(inits);
  const char* asked = std::getenv("FORMER_MASK");
  __atomic_store_n(mask, asked ? std::atoi(asked) : 0x1f, __ATOMIC_RELAXED);
  __atomic_store_n(&mask_pointer, mask, __ATOMIC_RELAXED);
  *context = &context_of_ours;
  return kSuccess;
}

Result start(void* context, void** handle, void* given) {
  const auto& descriptor = *static_cast<const Descriptor*>(given);
  if (context != &context_of_ours) add(wrong_contexts);
  const long number = __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED);
  if (number >= kMost) return kSuccess;
  const std::uint64_t type = descriptor.type;
  if (type && !(type & (type - 1)) && type < 0x10000) add(by_type[__builtin_ctzll(type)]);
  if (descriptor.parentObj && !own(descriptor.parentObj)) add(wrong_parents);
  if ((type == kProxyStep || type == kProxyOp) && !descriptor.parentObj) add(orphans);
  if (type == kColl) {
#if VERSION == 1
    add(all_reduces, descriptor.coll.func == 4 && descriptor.coll.datatype == 7);
#else
    add(all_reduces, named(descriptor.coll.func, "AllReduce") & named(descriptor.coll.datatype, "ncclFloat32"));
#endif
#if VERSION <= 3
    add(with_name, descriptor.coll.commHash != 0);
#endif
#if VERSION >= 5
    if (descriptor.coll.parentGroup && !own(descriptor.coll.parentGroup)) add(wrong_parents);
#endif
    const char* const last = std::getenv("FORMER_TOGGLES");
    if (last && by_type[1] == std::atol(last)) __atomic_store_n(mask_pointer, 0, __ATOMIC_RELAXED);
  }
  seen[number].type = type;
  *handle = &seen[number];
  return kSuccess;
}

Result stop(void* handle) {
  if (!there(handle)) add(wrong_handles);
  else add(static_cast<Seen*>(handle)->stops);
  return kSuccess;
}

Result record(void* handle, int state, void* arguments) {
  if (!there(handle)) add(wrong_handles);
  else add(static_cast<Seen*>(handle)->records);
  if (state == kSendWait && arguments) add(bytes_sent, static_cast<long>(static_cast<Arguments*>(arguments)->transSize));
  return kSuccess;
}

Result finalize(void* context) {
  if (context != &context_of_ours) add(wrong_contexts);
  add(finals);
  return kSuccess;
}

#if VERSION <= 3
using Table_ = TableV1;
Result init(void** context, int* mask) { return begin(context, mask); }
#elif VERSION == 4
using Table_ = TableV4;
Result init(void** context, int* mask, const char*, std::uint64_t, int, int, int, Logger) { return begin(context, mask); }
#else
using Table_ = TableV5;
Result init(void** context, std::uint64_t, int* mask, const char*, int, int, int, Logger) { return begin(context, mask); }
#endif

}  // namespace

#define NAMED(version) ncclProfiler_v##version
#define TABLE(version) NAMED(version)
extern "C" const Table_ TABLE(VERSION);
extern "C" const Table_ TABLE(VERSION) = {"former", init, start, stop, record, finalize};
