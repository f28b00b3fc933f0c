#pragma once

#include <pthread.h>

#include <chrono>
#include <ctime>
#include <mutex>

namespace argus {

/// A condition variable on the monotonic clock.
///
/// std::condition_variable waits for a time of that clock by a call which glibc has since 2.30; this one is
/// in every training image.
class Condition {
 public:
  Condition() noexcept {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_one() noexcept { pthread_cond_signal(&condition_); }
  void notify_all() noexcept { pthread_cond_broadcast(&condition_); }

  /// Waits, without the lock, until `is` holds or the time is over. Returns what `is` says then.
  template <typename Predicate>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until, Predicate is) {
    const auto since_start = until.time_since_epoch();  // libstdc++'s steady_clock is CLOCK_MONOTONIC
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_start);
    const timespec end{seconds.count(), std::chrono::nanoseconds(since_start - seconds).count()};
    while (!is())
      if (pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &end) != 0) return is();
    return true;
  }

 private:
  pthread_cond_t condition_;
};

}  // namespace argus
