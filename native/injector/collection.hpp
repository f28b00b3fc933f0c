#pragma once

#include <cstdint>
#include <mutex>

#include "buffer_pool.hpp"
#include "cupti.hpp"

namespace argus {

/// Whether CUPTI's records come to us, and if not, why. Any thread; calls into CUPTI happen under a lock of
/// its own, which CUPTI's callbacks never take.
class Collection {
 public:
  struct State {
    bool collecting = false;  ///< CUPTI has our callbacks and the kinds are on
    char reason[32] = {};     ///< fit for a label: a few fixed words; empty: up. No std::string: that may throw
    bool up() const noexcept { return reason[0] == '\0'; }
  };

  /// Nothing can be collected, for this reason.
  explicit Collection(const char* reason) noexcept : final_(true) { set(false, reason); }
  /// `calls`: launch calls that are recorded too, from the start on.
  Collection(Cupti& cupti, BufferPool& pool, abi::RequestCallback request, abi::CompleteCallback complete,
             LaunchCalls calls)
      : cupti_(&cupti), pool_(&pool), request_(request), complete_(complete), calls_(calls) {}

  /// Begins to collect; false and a reason where CUPTI refuses (another tool holds it: other_subscriber).
  bool start() noexcept;
  /// Stands aside for another user of CUPTI. False: there is nothing to pause.
  bool pause() noexcept;
  /// Takes the callbacks back and collects again. `silent`: the watchdog asks, since no records came since
  /// it asked last; from the third time in a row on the channel counts as down (no_records).
  bool rearm(bool silent) noexcept;
  /// These launch calls too, from now on; what is off stays off, and has them when it comes back.
  void record(LaunchCalls calls) noexcept;
  /// Switches off for good.
  void stop(const char* reason) noexcept;
  /// Off until the pool has recovered from an overrun; true where it was on.
  bool hold() noexcept;
  void release() noexcept;
  /// Records came: the watchdog's count begins anew.
  void heard() noexcept;

  State state() const noexcept;
  bool collecting() const noexcept;
  /// CUPTI's buffers are ours to ask for: not while we stand aside.
  bool may_flush() const noexcept;

  std::uint64_t pauses() const noexcept;
  std::uint64_t rearms() const noexcept;
  std::uint64_t silent_rearms() const noexcept;

 private:
  bool begin() noexcept;
  void set(bool collecting, const char* reason) noexcept;

  Cupti* cupti_ = nullptr;
  BufferPool* pool_ = nullptr;
  abi::RequestCallback request_ = nullptr;
  abi::CompleteCallback complete_ = nullptr;
  LaunchCalls calls_ = LaunchCalls::kNone;

  mutable std::mutex mutex_;
  bool final_ = false;  ///< off for good
  bool held_ = false;
  bool silent_ = false;
  State state_;
  std::uint64_t pauses_ = 0;
  std::uint64_t rearms_ = 0;
  std::uint64_t silent_rearms_ = 0;
  std::uint64_t fruitless_ = 0;
};

}  // namespace argus
