// Generated from exporter/argus_core/nccl_page.py by `make generate`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace argus::page {

inline constexpr std::uint32_t kMagic = 0x4c43434e;
inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kSize = 294912;
inline constexpr std::uint32_t kCommunicators = 64;
inline constexpr std::uint32_t kPeers = 16;
inline constexpr std::uint32_t kOtherPeers = 0xffffffff;
inline constexpr std::uint32_t kFunctions = 8;
inline constexpr std::uint32_t kStepStates = 6;
inline constexpr std::uint32_t kLive = 1;
inline constexpr std::uint32_t kFinalized = 2;
inline constexpr std::uint64_t kSizeLimits[] = {65536, 1048576, 16777216, 268435456};
inline constexpr const char* kFunctionNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "other"};

enum class Function : std::uint32_t {
  kAllReduce = 0,
  kAllGather = 1,
  kReduceScatter = 2,
  kBroadcast = 3,
  kReduce = 4,
  kSend = 5,
  kRecv = 6,
  kOther = 7,
};

enum class State : std::uint32_t {
  kNotLoaded = 0,
  kWatching = 1,
  kDeclined = 2,
};

enum class Reason : std::uint32_t {
  kNone = 0,
  kDisabled = 1,
  kNotAskedFor = 2,
  kRccl = 3,
  kNccl223Network = 4,
  kNoMemory = 5,
};

enum class Former : std::uint32_t {
  kNone = 0,
  kChained = 1,
  kFailed = 2,
  kNewer = 3,
  kMissing = 4,
};

/// Of the whole memory.
struct Header {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t pid = 0;
  std::uint32_t state = 0;
  std::uint32_t reason = 0;
  std::uint32_t nccl_version = 0;
  std::uint32_t table = 0;
  std::uint32_t mask = 0;
  std::uint32_t former = 0;
  std::uint32_t communicators = 0;
  std::uint64_t started_ns = 0;
  std::uint64_t dropped_events = 0;
  std::uint64_t foreign_events = 0;
  std::uint64_t unknown_events = 0;
  std::uint64_t stale_events = 0;
  std::uint64_t dropped_communicators = 0;
  std::uint64_t former_dropped_events = 0;
};
static_assert(sizeof(Header) == 96);

/// Of one function.
struct Operation {
  std::uint64_t called = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;
  std::uint64_t entered_ns = 0;
  std::uint64_t finished = 0;
  std::uint64_t finished_ns = 0;
  std::uint64_t network_ns = 0;
  std::uint64_t network_count = 0;
  std::uint64_t by_size[5] = {};
};
static_assert(sizeof(Operation) == 112);

/// By function, and by class of size.
struct Kernels {
  std::uint64_t count[8] = {};
  std::uint64_t ns[8] = {};
  std::uint64_t finished[8] = {};
  std::uint64_t bus_ns[5] = {};
  std::uint64_t bus_bytes[5] = {};
  std::uint8_t padding[48] = {};
};
static_assert(sizeof(Kernels) == 320);

/// Of one member that steps go to.
struct Peer {
  std::uint32_t key = 0;
  std::uint8_t padding[4] = {};
  std::uint64_t last_ns = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t ns[6] = {};
  std::uint64_t steps[6] = {};
  std::uint32_t open[6] = {};
  std::uint16_t oldest[6] = {};
  std::uint8_t oldest_function[2] = {};
  std::uint8_t padding1[2] = {};
  std::uint64_t oldest_entered_ns[2] = {};
  std::uint64_t oldest_moved_ns[2] = {};
};
static_assert(sizeof(Peer) == 200);

/// Leads a communicator.
struct Identity {
  std::uint64_t hash = 0;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int32_t nodes = 0;
  std::uint32_t state = 0;
  std::uint32_t generation = 0;
  std::uint8_t padding[4] = {};
  char name[48] = {};
  std::uint64_t launches = 0;
  std::uint64_t launch_ns = 0;
  std::uint64_t progress_ns = 0;
  std::uint8_t padding1[24] = {};
};
static_assert(sizeof(Identity) == 128);

struct Communicator {
  Identity identity;
  Operation operations[kFunctions];
  Kernels kernels;
  Peer peers[kPeers];
};
static_assert(sizeof(Communicator) == 4544);

}  // namespace argus::page
