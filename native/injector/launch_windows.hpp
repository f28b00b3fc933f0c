#pragma once

#include <cstdint>

namespace argus {

/// When launch calls are recorded, where that is sampled (ARGUS_ISSUE_LATENCY): one second of every ten.
///
/// CUPTI writes the record of a call on the thread that makes it, so the training pays for each. At 1 us a call,
/// more than is known of CUPTI, and 50,000 launches a second, which no training step that keeps a GPU busy exceeds,
/// all of them would cost 5 % and a tenth of them 0.5 %. A window of the exporter aims at 60 s and so holds six.
///
/// Chosen by the host's clock alone, so that all ranks of a job record the same second and none looks slower than
/// its peers for being watched. Where in its ten seconds it lies changes from one to the next, so that no length
/// of a step keeps the same part of it unseen.
struct LaunchWindows {
  static constexpr std::uint64_t kSecond = 1'000'000'000;
  static constexpr std::uint64_t kPeriod = 10 * kSecond;
  static constexpr std::uint64_t kLength = kSecond;

  /// Begin of the window of the period in which `unix_ns` lies. Both in Unix nanoseconds.
  static constexpr std::uint64_t begin(std::uint64_t unix_ns) noexcept {
    const std::uint64_t period = unix_ns / kPeriod;
    std::uint64_t mixed = period + 0x9E3779B97F4A7C15U;  // SplitMix64: Steele, Lea, Flood 2014
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    mixed ^= mixed >> 31U;
    return period * kPeriod + mixed % (kPeriod - kLength);
  }
  static constexpr bool open(std::uint64_t unix_ns) noexcept {
    const std::uint64_t from = begin(unix_ns);
    return unix_ns >= from && unix_ns < from + kLength;
  }
  /// Nanoseconds until `open` may answer otherwise; never 0.
  static constexpr std::uint64_t until_change(std::uint64_t unix_ns) noexcept {
    const std::uint64_t from = begin(unix_ns);
    if (unix_ns < from) return from - unix_ns;
    if (unix_ns < from + kLength) return from + kLength - unix_ns;
    return begin(unix_ns - unix_ns % kPeriod + kPeriod) - unix_ns;
  }
};

}  // namespace argus
