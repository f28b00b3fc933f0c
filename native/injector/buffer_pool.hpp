#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "condition.hpp"

namespace argus {

/// The buffers that CUPTI fills, and the queue in which they come to the worker.
///
/// All memory is mapped once and touched only when used. `request` and `complete` run on CUPTI's threads,
/// which may be the training's: they move one pointer under a lock that is never held for longer, and never
/// allocate, wait for the worker or throw.
///
/// Three tiers. Buffers proper. Where they are all in use and CUPTI can take no for an answer, the request
/// is refused and CUPTI counts what it drops. Else a reserve of small buffers is lent, whose records are
/// counted and dropped; and beyond it one void that is lent to any number of requests and never read, while
/// `overrun` asks the worker to switch collection off until it has caught up.
class BufferPool {
 public:
  struct Filled {
    std::uint8_t* data;
    std::size_t valid;  ///< bytes
    bool discard;       ///< of the reserve: count its records, then give it back
  };

  static constexpr std::size_t kReserveBuffers = 64;
  static constexpr std::size_t kReserveBytes = 64 * 1024;

  /// Throws std::bad_alloc where the memory cannot be mapped.
  BufferPool(std::size_t count, std::size_t bytes, bool may_refuse);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// CUPTI wants a buffer. Null and size 0: refused.
  void request(std::uint8_t** data, std::size_t* size) noexcept;
  /// CUPTI hands a buffer over. One that is not out (another profiler's, after the callbacks changed hands)
  /// is ignored and counted.
  void complete(std::uint8_t* data, std::size_t valid) noexcept;

  /// The oldest filled buffer; waits for one until `until` or `wake`. Worker.
  std::optional<Filled> take(std::chrono::steady_clock::time_point until);
  /// The oldest filled buffer if there is one. Worker.
  std::optional<Filled> take() noexcept;
  void give_back(const Filled& buffer) noexcept;
  /// Ends the wait of `take`, now or the next one. Any thread.
  void wake() noexcept;

  /// Buffers that are out went to whoever had the callbacks meanwhile: puts as many fresh ones into their
  /// place, up to the size of the pool over the life of the process. They are taken if they come after all.
  void replace_lent() noexcept;

  /// At least half of the buffers are free: the worker may take its time.
  bool at_ease() const noexcept;
  bool overrun() const noexcept;
  /// After an overrun: true once the worker has caught up, which ends it.
  bool recovered() noexcept;

  std::size_t free_buffers() const noexcept;
  std::uint64_t foreign() const noexcept;
  std::uint64_t replaced() const noexcept;
  /// Bytes of records that went into the void since the last call.
  std::uint64_t take_voided_bytes() noexcept;

 private:
  enum class Place : std::uint8_t { kFree, kLent, kQueued, kUnused };

  std::uint8_t* address(std::size_t slot) const noexcept;
  std::optional<std::size_t> slot_of(const std::uint8_t* data) const noexcept;
  bool is_reserve(std::size_t slot) const noexcept { return slot >= buffers_; }
  Filled pop() noexcept;

  const std::size_t count_;    ///< buffers proper at the start
  const std::size_t buffers_;  ///< slots of buffers proper: twice `count_`, the rest to replace lost ones
  const std::size_t bytes_;
  const bool may_refuse_;
  std::size_t mapped_ = 0;
  std::uint8_t* memory_ = nullptr;  ///< buffers, then the reserve, then the void

  mutable std::mutex mutex_;
  Condition filled_;
  std::vector<Place> places_;
  std::vector<std::size_t> free_;     ///< last in, first out: what was used last is in the cache
  std::vector<std::size_t> reserve_;
  std::vector<std::pair<std::size_t, std::size_t>> queue_;  ///< ring of (slot, valid bytes)
  std::size_t head_ = 0;
  std::size_t queued_ = 0;
  std::size_t in_use_ = 0;  ///< slots that are buffers: `count_` and the replacements
  bool woken_ = false;
  bool overrun_ = false;
  std::uint64_t foreign_ = 0;
  std::uint64_t voided_bytes_ = 0;
};

}  // namespace argus
