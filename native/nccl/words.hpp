#pragma once

#include <time.h>

#include <cstdint>

namespace argus::nccl {

/// CLOCK_MONOTONIC in nanoseconds: the clock of the shared page, read without a system call.
inline std::uint64_t now_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Words that other threads, or the exporter, read meanwhile. Their order among each other is of no account.
template <class T>
T load(const T& word) noexcept {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <class T>
void store(T& word, T value) noexcept {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}
/// Several threads may add.
template <class T>
T add(T& word, T value) noexcept {
  return __atomic_fetch_add(&word, value, __ATOMIC_RELAXED);
}
/// One thread adds: half the time of `add`.
template <class T>
void add_alone(T& word, T value) noexcept {
  store(word, static_cast<T>(load(word) + value));
}

}  // namespace argus::nccl
