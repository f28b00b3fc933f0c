#pragma once

#include <algorithm>
#include <cstdint>

#include "environment.hpp"

namespace argus {

/// Whether the kernels channel costs the training more than it may, by what a record was measured to cost.
///
/// On a GPU that is always busy, what CUPTI adds to each kernel there counts: 0.17 us, of a CUDA graph 0.21. Where the
/// host is behind, what it adds to each launch: 0.71 us, and as much again where the launch itself is recorded. Source:
/// docs/overhead.md, on an H200 and a Xeon. A busy GPU shows by the sum of its kernels' durations.
///
/// Judged by the kernels' own times, minute by minute of Unix time, so that the ranks of a job judge the same minutes.
/// Five minutes in a row: compilers that try kernels out and the first steps are over by then.
class Budget {
 public:
  /// `percent` of the training's time; 0: whatever it costs.
  Budget(long percent, LaunchTimes launches) noexcept
      : most_ns_(static_cast<std::uint64_t>(percent) * kMinute / 100),
        launch_ns_(launches == LaunchTimes::kAlways ? 1'410 : launches == LaunchTimes::kSampled ? 780 : 710) {}

  void kernel(std::uint64_t start_ns, std::uint64_t duration_ns, bool of_graph) noexcept {
    const std::uint64_t minute = start_ns / kMinute;
    if (minute > minute_) turn(minute);  // one that comes late counts for the minute in which it comes
    ++kernels_;
    if (!of_graph) ++launches_;
    busy_ns_ += duration_ns;
  }
  bool exceeded() const noexcept { return in_a_row_ >= kMinutes; }

 private:
  static constexpr std::uint64_t kMinute = 60'000'000'000;
  static constexpr int kMinutes = 5;
  static constexpr std::uint64_t kKernelNs = 200;

  void turn(std::uint64_t minute) noexcept {
    const std::uint64_t on_gpu = kernels_ * kKernelNs;
    const bool busy = busy_ns_ >= kMinute / 10 * 9;
    const std::uint64_t cost_ns = busy ? on_gpu : std::max(on_gpu, launches_ * launch_ns_);
    const bool above = most_ns_ > 0 && cost_ns > most_ns_;
    if (!exceeded()) in_a_row_ = above && minute == minute_ + 1 ? in_a_row_ + 1 : 0;
    minute_ = minute;
    kernels_ = launches_ = busy_ns_ = 0;
  }

  const std::uint64_t most_ns_;
  const std::uint64_t launch_ns_;
  std::uint64_t minute_ = 0;
  std::uint64_t kernels_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t busy_ns_ = 0;
  int in_a_row_ = 0;
};

}  // namespace argus
