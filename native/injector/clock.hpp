#pragma once

#include <cstdint>

#include "cupti.hpp"

namespace argus {

/// Nanoseconds of CLOCK_REALTIME.
std::uint64_t unix_now() noexcept;

/// From CUPTI's clock to Unix time.
///
/// On Linux CUPTI stamps records with CLOCK_REALTIME unless somebody registered a timestamp callback
/// (Kineto's counts TSC ticks), so neither offset nor rate may be taken for granted, and both may change in
/// mid-run. Worker only.
class Clock {
 public:
  explicit Clock(const Cupti& cupti) noexcept;

  /// Reads both clocks together and follows: a small error moves the offset, a large one means that another
  /// clock stamps now, whose rate is measured over 10 ms.
  void refresh() noexcept;

  std::uint64_t unix_ns(std::uint64_t ticks) const noexcept {
    const auto since = static_cast<std::int64_t>(ticks - base_ticks_);
    if (in_nanoseconds_) return base_ns_ + static_cast<std::uint64_t>(since);
    return base_ns_ + static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<double>(since) * rate_));
  }
  std::uint64_t duration_ns(std::uint64_t ticks) const noexcept {
    if (in_nanoseconds_) return ticks;
    return static_cast<std::uint64_t>(static_cast<double>(ticks) * rate_ + 0.5);
  }

  /// Times that the clock was found to be another.
  std::uint64_t changes() const noexcept { return changes_; }

 private:
  struct Pair {
    std::uint64_t ticks = 0;
    std::uint64_t ns = 0;
    std::uint64_t uncertainty_ns = 0;
    bool good = false;
  };

  Pair read() const noexcept;
  void measure_rate() noexcept;

  const Cupti& cupti_;
  std::uint64_t base_ticks_ = 0;
  std::uint64_t base_ns_ = 0;
  double rate_ = 1.0;
  bool in_nanoseconds_ = true;
  Pair first_;  ///< since the last change: the longer the baseline, the better the rate
  std::uint64_t changes_ = 0;
};

}  // namespace argus
