#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../nccl/launches.hpp"
#include "wire.hpp"

namespace argus {

/// Joins kernels with NCCL's communicators: libargus_nccl knows for which one a thread calls the driver, and when;
/// CUPTI's record of the call has thread, time and the correlation id that the kernel's record has too. Worker only.
///
/// A call belongs to a launch of its thread that it overlaps in time, if that is the only one: where the clocks do not
/// agree it would touch two, and a kernel without a communicator is better than one with another's. The kernels of a
/// graph have the id of the graph's launch, which is within no launch of NCCL's.
class NcclLaunches {
 public:
  explicit NcclLaunches(const nccl::LaunchRing& ring) : ring_(ring), known_(kPlaces) {}

  /// A call of cuLaunchKernelEx. `thread`: as CUPTI numbers it, by pthread_self or by the system. Unix ns.
  void called(std::uint32_t correlation, std::uint32_t thread, std::uint64_t begin_ns, std::uint64_t end_ns) noexcept;

  /// The word of a kernel for the wire (argus_core.wire.launched_by); 0: its call is not known, or not NCCL's.
  std::uint32_t of(std::uint32_t correlation) noexcept;
  /// Whether a word says what the kernel does. NCCL tells that after the launch: a record may be read before.
  static bool is_told(std::uint32_t word) noexcept { return (word & (2 * wire::kLaunchedOne - 1)) != 0; }
  /// Whether NCCL has not returned from the launch yet: several flushes may be read while its thread is held up.
  bool goes_on(std::uint32_t correlation) const noexcept;
  using Operations = nccl::LaunchedOperation[nccl::LaunchRing::kTold];
  /// A kernel has ended, and is to be sent: counts it for its communicator, if it is known what it does. Answers how many
  /// operations are to be told beside its word, the first of them in `out`. 0: the word says all, or nobody knows.
  std::uint32_t ended(std::uint32_t correlation, std::uint64_t duration_ns, Operations& out) noexcept;
  /// Kernels whose operations had been overwritten when they were asked for.
  std::uint64_t unlisted() const noexcept { return unlisted_; }

 private:
  static constexpr std::size_t kPlaces = 1 << 16;  ///< calls remembered: more than are ever in flight
  /// Launches that began after a call and are looked at, as those of threads that launch at once are not in order.
  static constexpr std::uint32_t kAhead = 16;
  /// A thread may be held up between the begin of its launch and the call while others go on: a choice, ten turns of
  /// Linux's scheduler. At 1,000 launches a second 100 of them are looked at, where a thread has none.
  static constexpr std::uint64_t kHeldUpNs = 100'000'000;

  struct Known {
    std::uint32_t correlation = 0;
    std::uint32_t word = 0;
    std::uint32_t launch = 0;
  };

  /// Number of the last launch that began at or before a time, give or take some.
  std::uint32_t last_before(std::uint64_t ns) const noexcept;

  const nccl::LaunchRing& ring_;
  std::vector<Known> known_;
  std::uint64_t unlisted_ = 0;
};

}  // namespace argus
