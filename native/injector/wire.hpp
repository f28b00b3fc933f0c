// Generated from exporter/argus_core/wire.py by `make generate`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace argus::wire {

inline constexpr std::uint32_t kMagic = 0x53475241;
inline constexpr std::uint16_t kVersion = 2;
inline constexpr std::size_t kMaxMessageBytes = 65536;
inline constexpr std::size_t kNameBytes = 256;
inline constexpr std::size_t kStepMarkBytes = 4;
inline constexpr std::uint32_t kStepMarkValue = 0x41520000;
inline constexpr std::uint32_t kStepMarks = 0x8000;
inline constexpr std::uint32_t kLaunchedByNccl = 0x80000000;
inline constexpr std::uint32_t kLaunchedSlot = 25;
inline constexpr std::uint32_t kLaunchedGeneration = 16;
inline constexpr std::uint32_t kLaunchedOne = 0x8000;
inline constexpr std::uint32_t kListed = 16;

enum class MessageType : std::uint16_t {
  kHello = 1,
  kNames = 2,
  kSpans = 3,
  kKernels = 4,
  kIterations = 5,
  kActivity = 6,
  kWork = 7,
  kChannels = 8,
  kBye = 9,
  kGarbageCollections = 10,
  kCompilations = 11,
  kStackNodes = 12,
  kStackSamples = 13,
  kJob = 14,
  kPhases = 15,
  kLayers = 16,
  kGpuSpans = 17,
  kNcclOperations = 18,
};

enum class Operation : std::uint8_t {
  kKernel = 0,
  kMemcpy = 1,
  kMemset = 2,
};

enum class Channel : std::uint8_t {
  kPhases = 0,
  kKernels = 1,
  kStacks = 2,
};

#pragma pack(push, 1)

/// Leads every message.
struct Header {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t type = 0;
  std::uint32_t count = 0;
  std::uint32_t sequence = 0;
  std::uint64_t dropped = 0;
};
static_assert(sizeof(Header) == 24);

/// First message of a connection: who speaks, and of which channels.
struct Hello {
  std::uint32_t pid = 0;
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;
  std::int32_t world_size = 0;
  std::int32_t dp = 0;
  std::int32_t tp = 0;
  std::int32_t pp = 0;
  std::int32_t ep = 0;
  std::int32_t dp_size = 0;
  std::int32_t tp_size = 0;
  std::int32_t pp_size = 0;
  std::int32_t ep_size = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t realtime_ns = 0;
  char training_job[64] = {};
  char node[64] = {};
  char gpu_uuid[48] = {};
  char role[32] = {};
  std::uint8_t channels = 0;
  std::uint8_t shares_page = 0;
  std::uint16_t cp = 0;
  std::uint16_t cp_size = 0;
  std::uint8_t padding[2] = {};
};
static_assert(sizeof(Hello) == 280);

/// Binds `name_id` to a text of at most 256 bytes of UTF-8 (see `encode_name`).
struct Name {
  std::uint32_t name_id = 0;
  char text[256] = {};
};
static_assert(sizeof(Name) == 260);

/// One kernel, copy or memory set. `issue_ns`: start minus launch, -1 when unknown.
struct Kernel {
  std::uint64_t start_ns = 0;
  std::uint64_t duration_ns = 0;
  std::int64_t issue_ns = 0;
  std::uint32_t name_id = 0;
  std::uint32_t stream = 0;
  std::uint32_t kilobytes = 0;
  std::uint8_t operation = 0;
  std::uint8_t device = 0;
  std::uint16_t mark = 0;
};
static_assert(sizeof(Kernel) == 40);

/// One operation of a kernel of NCCL's that does several, or that sends or receives.
struct NcclOperation {
  std::uint64_t start_ns = 0;
  std::uint32_t launched_by = 0;
  std::uint32_t sequence = 0;
  std::int32_t peer = 0;
  std::uint8_t function = 0;
  std::uint8_t place = 0;
  std::uint8_t padding[2] = {};
};
static_assert(sizeof(NcclOperation) == 24);

/// State and own cost of a channel inside the training process.
struct ChannelState {
  std::uint64_t cpu_ns = 0;
  std::uint64_t dropped = 0;
  std::uint32_t reason_id = 0;
  std::uint8_t channel = 0;
  std::uint8_t up = 0;
  std::uint8_t padding[2] = {};
};
static_assert(sizeof(ChannelState) == 24);

#pragma pack(pop)

}  // namespace argus::wire
