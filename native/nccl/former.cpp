#include "former.hpp"

#include <dlfcn.h>
#include <strings.h>

#include "host.hpp"
#include "variables.hpp"

namespace argus::nccl {
namespace {

constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
constexpr int kNewest = 7;
constexpr std::uint64_t kNetwork = kProxyOp | kProxyStep | kNetPlugin;
constexpr std::uint64_t kBelow = kNetwork | kKernelCh | kKernelPhase;
constexpr std::uint64_t kCe = kCeColl | kCeSync | kCeBatch;

/// As NCCL looks for a plugin: the name as it is, else within libnccl-profiler-NAME.so.
void* open_library(const std::string& value) {
  if (void* library = dlopen(value.c_str(), kFlags)) return library;
  const bool whole = value.find('/') != std::string::npos ||
                     (value.rfind("lib", 0) == 0 && value.size() > 6 && value.rfind(".so") == value.size() - 3);
  return whole ? nullptr : dlopen(("libnccl-profiler-" + value + ".so").c_str(), kFlags);
}

/// The oldest version of the interface that knows a state; the states of all versions are numbered alike.
int since(int state) noexcept {
  if (state <= kProxyCtrlAppendEnd) return 1;
  if (state == kInProgress || state == kSendPeerWait) return 4;
  if (state <= kKernelChStop) return 3;
  if (state <= kGroupEndApiStart) return 5;
  return state <= kCeLast ? 6 : kNewest;
}

}  // namespace

page::Former Former::load(const std::string& value, int table) noexcept {
  try {
    if (strcasecmp(value.c_str(), "none") == 0) return page::Former::kNone;
    // Where nothing was configured, NCCL takes the library of this name if there is one.
    void* library = value.empty() ? dlopen("libnccl-profiler.so", kFlags) : open_library(value);
    if (!library && value.empty()) return page::Former::kNone;
    if (!library) {
      say("ARGUS_NEXT_PROFILER is '" + value + "', which cannot be loaded as a plugin of NCCL; going on without it");
      return page::Former::kMissing;
    }
    for (int version = table; version >= 1; --version)
      if (open_table(library, version)) return page::Former::kChained;
    say("ARGUS_NEXT_PROFILER is '" + value + "', which has no ncclProfiler_v1 to _v" + std::to_string(table) +
        " as this NCCL asks for; going on without it");
    return page::Former::kNewer;
  } catch (...) {
    return page::Former::kMissing;
  }
}

bool Former::open_table(void* library, int version) noexcept {
  char symbol[] = "ncclProfiler_v0";
  symbol[sizeof symbol - 2] = static_cast<char>('0' + version);
  const auto* table = static_cast<const TableV5*>(dlsym(library, symbol));
  if (!table || !table->startEvent || !table->stopEvent || !table->recordEventState || !table->finalize) return false;
  table_ = table;
  start_ = table->startEvent;  // at one place in the tables of all versions
  stop_ = table->stopEvent;
  record_ = table->recordEventState;
  finalize_ = table->finalize;
  version_ = version;
  return true;
}

bool Former::open(Communicator& communicator, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
                  Logger logger) noexcept {
  void* theirs = nullptr;
  Result answer = kSuccess;
  if (version_ <= 3)
    answer = static_cast<const TableV1*>(table_)->init(&theirs, &mask_);
  else if (version_ == 4)
    answer = static_cast<const TableV4*>(table_)->init(&theirs, &mask_, name, hash, nodes, ranks, rank, logger);
  else
    answer = static_cast<const TableV5*>(table_)->init(&theirs, hash, &mask_, name, nodes, ranks, rank, logger);
  if (answer != kSuccess) {
    __atomic_store_n(&failed_, true, __ATOMIC_RELAXED);
    return false;
  }
  communicator.theirs = theirs;
  communicator.chained = true;
  return true;
}

void Former::close(Communicator& communicator) noexcept {
  if (communicator.theirs) finalize_(communicator.theirs);  // as NCCL: only where it has a context
}

std::uint32_t Former::mask() const noexcept { return static_cast<std::uint32_t>(nccl::load(mask_)); }

bool Former::wants(std::uint64_t type) const noexcept {
  const std::uint64_t asked = mask();
  if (!(type & known_types(version_))) return false;
  switch (type) {
    case kGroup:
      return asked & (kGroup | kColl | kP2p | kBelow);
    case kColl:
      return asked & (kColl | kBelow);
    case kP2p:
      return asked & (kP2p | kBelow);
    case kProxyOp:
      return asked & kNetwork;
    case kProxyStep:
      return asked & (kProxyStep | kNetPlugin);
    case kKernelCh:
      return asked & (kKernelCh | kKernelPhase);
    case kGroupApi:
      return asked & (kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kGroup | kColl | kP2p | kBelow | kCe);
    case kCollApi:
      return asked & (kCollApi | kColl | kBelow | kCe);
    case kP2pApi:
      return asked & (kP2pApi | kP2p | kBelow);
    case kCeColl:
      return asked & kCe;
    default:
      return asked & type;
  }
}

template <class Descriptor>
void* Former::start_as(Communicator& communicator, const Event& event) noexcept {
  Descriptor descriptor;
  encode(event, descriptor);
  void* handle = nullptr;
  start_(communicator.theirs, &handle, &descriptor);
  return handle;
}

void* Former::start(Communicator& communicator, Event event, void* descriptor, int table, void* parent,
                    void* parent_group) noexcept {
  if (version_ == table || version_ >= 5) {  // theirs reads the host's own, of which v5 to v7 are one the other's start
    void** slots[2] = {nullptr, nullptr};
    if (table >= 5) {
      auto* whole = static_cast<DescriptorV5*>(descriptor);
      slots[0] = &whole->parentObj;
      if (event.type == kColl) slots[1] = &whole->coll.parentGroup;
      if (event.type == kP2p) slots[1] = &whole->p2p.parentGroup;
    } else {  // the parent lies at the same place in the four
      slots[0] = &static_cast<DescriptorV4*>(descriptor)->parentObj;
    }
    void* const before[2] = {*slots[0], slots[1] ? *slots[1] : nullptr};
    *slots[0] = parent;
    if (slots[1]) *slots[1] = parent_group;
    void* handle = nullptr;
    start_(communicator.theirs, &handle, descriptor);
    *slots[0] = before[0];
    if (slots[1]) *slots[1] = before[1];
    return handle;
  }
  // Of an older version: collectives hang below their group there, and say whose they are.
  event.parent = parent;
  event.parent_group = parent_group;
  event.name = communicator.page->identity.name[0] ? communicator.page->identity.name : nullptr;
  event.hash = communicator.page->identity.hash;
  if (event.type == kGroup) event.parent = nullptr;
  if (event.type == kColl || event.type == kP2p) event.parent = nullptr;
  switch (version_) {
    case 1:
      return start_as<DescriptorV1>(communicator, event);
    case 2:
      return start_as<DescriptorV2>(communicator, event);
    case 3:
      return start_as<DescriptorV3>(communicator, event);
    default:
      return start_as<DescriptorV4>(communicator, event);
  }
}

void Former::stop(void* handle) noexcept { stop_(handle); }

void Former::record(void* handle, int state, void* arguments, int table) noexcept {
  if (since(state) > version_) return;
  if (!arguments || version_ == table || version_ >= 4) {
    record_(handle, state, arguments);
    return;
  }
  // One word became a structure of two; both begin with the bytes, or with the count of appended operations.
  OldArguments old{static_cast<Arguments*>(arguments)->transSize, 0};
  record_(handle, state, &old);
}

}  // namespace argus::nccl
