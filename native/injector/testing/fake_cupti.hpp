// What tests tell the fake libcupti, beside CUPTI's own functions. Resolved by dlsym.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake {

/// One record to be written into a buffer, in CUPTI's own clock.
struct Activity {
  std::uint32_t kind = 10;
  std::uint32_t device = 0;
  std::uint32_t stream = 7;
  std::uint32_t correlation = 0;
  std::uint32_t graph = 0;
  std::uint32_t call = 0;  ///< callback id of a launch
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t value = 0;  ///< of a memory set
  const char* name = nullptr;
};

/// Counts since the start. `kept`: records of kernels, copies and sets that a client should see or be told of
/// as dropped: those that went into a buffer of it, and those that CUPTI dropped.
struct Counts {
  std::uint64_t kept = 0;
  std::uint64_t refused = 0;        ///< of these: dropped for want of a buffer
  std::uint64_t launches = 0;       ///< records of launch calls
  std::uint64_t forced_flushes = 0;
  std::uint64_t registrations = 0;
};

using Emit = void (*)(const Activity*);
using ReadCounts = void (*)(Counts*);
/// A buffer as it was recorded: sizes of records by kind, then the bytes themselves.
using Replay = bool (*)(const std::uint8_t* bytes, std::size_t size);
using SetSize = void (*)(std::uint32_t kind, std::size_t size);

}  // namespace fake
