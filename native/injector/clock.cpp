#include "clock.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace argus {
namespace {

constexpr int kReads = 3;  // the best of them: a preemption between two reads would be an error
constexpr std::int64_t kOtherClockNs = 1'000'000;
constexpr long kMeasureNs = 10'000'000;
constexpr double kSameRate = 1e-3;  // clocks that count nanoseconds differ by 1e-4 at most

}  // namespace

std::uint64_t unix_now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

Clock::Clock(const Cupti& cupti) noexcept : cupti_(cupti) {
  first_ = read();
  if (first_.good) {
    base_ticks_ = first_.ticks;
    base_ns_ = first_.ns;
  }
}

Clock::Pair Clock::read() const noexcept {
  Pair best;
  for (int attempt = 0; attempt < kReads; ++attempt) {
    Pair pair;
    const std::uint64_t before = unix_now();
    pair.good = cupti_.timestamp(pair.ticks);
    const std::uint64_t after = unix_now();
    if (!pair.good || after < before) continue;
    pair.ns = before + (after - before) / 2;
    pair.uncertainty_ns = (after - before) / 2 + 1;
    if (!best.good || pair.uncertainty_ns < best.uncertainty_ns) best = pair;
  }
  return best;
}

void Clock::refresh() noexcept {
  const Pair pair = read();
  if (!pair.good) return;  // without a readable clock the documented default holds: CLOCK_REALTIME
  const auto error = static_cast<std::int64_t>(pair.ns - unix_ns(pair.ticks));
  if (std::abs(error) > kOtherClockNs) {
    measure_rate();
    return;
  }
  if (!in_nanoseconds_ && pair.ticks != first_.ticks)
    rate_ = static_cast<double>(pair.ns - first_.ns) / static_cast<double>(pair.ticks - first_.ticks);
  // Below what the reading itself may be off, following would only add its noise to the records.
  if (std::abs(error) > static_cast<std::int64_t>(pair.uncertainty_ns)) {
    base_ticks_ = pair.ticks;
    base_ns_ = pair.ns;
  }
}

void Clock::measure_rate() noexcept {
  const Pair first = read();
  const timespec pause{0, kMeasureNs};
  nanosleep(&pause, nullptr);
  const Pair second = read();
  if (!first.good || !second.good || second.ticks <= first.ticks || second.ns <= first.ns) return;
  rate_ = static_cast<double>(second.ns - first.ns) / static_cast<double>(second.ticks - first.ticks);
  in_nanoseconds_ = std::abs(rate_ - 1.0) < kSameRate;
  first_ = first;
  base_ticks_ = second.ticks;
  base_ns_ = second.ns;
  ++changes_;
}

}  // namespace argus
