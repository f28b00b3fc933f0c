#include "collection.hpp"

#include <cstdio>

namespace argus {
namespace {

constexpr std::uint64_t kFruitlessLimit = 3;
using Lock = std::lock_guard<std::mutex>;

}  // namespace

bool Collection::begin() noexcept {
  const abi::Result result = cupti_->start(request_, complete_, launches_);
  char reason[sizeof state_.reason] = {};
  if (result != abi::kSuccess) std::snprintf(reason, sizeof reason, "cupti_error_%d", result);
  set(result == abi::kSuccess, reason);
  return state_.collecting;
}

void Collection::set(bool collecting, const char* reason) noexcept {
  state_.collecting = collecting;
  std::snprintf(state_.reason, sizeof state_.reason, "%s", reason);
}

bool Collection::start() noexcept {
  const Lock lock(mutex_);
  if (final_) return false;
  final_ = !begin();
  return !final_;
}

bool Collection::pause() noexcept {
  const Lock lock(mutex_);
  if (final_ || !state_.collecting) return false;
  cupti_->stop(launches_);
  cupti_->flush();
  set(false, "paused");
  held_ = false;
  ++pauses_;
  return true;
}

bool Collection::rearm(bool silent) noexcept {
  const Lock lock(mutex_);
  if (final_) return false;
  ++rearms_;
  if (silent) {
    ++silent_rearms_;
    silent_ = ++fruitless_ >= kFruitlessLimit;
  }
  // Buffers that are being filled go to whose callbacks stand now: CUPTI would go on filling another's.
  cupti_->flush();
  pool_->replace_lent();
  held_ = false;
  return begin();
}

void Collection::stop(const char* reason) noexcept {
  const Lock lock(mutex_);
  if (final_) return;
  if (state_.collecting) cupti_->stop(launches_);
  final_ = true;
  set(false, reason);
}

bool Collection::hold() noexcept {
  const Lock lock(mutex_);
  if (!state_.collecting) return false;
  cupti_->stop(launches_);
  held_ = true;
  set(false, "overrun");
  return true;
}

void Collection::release() noexcept {
  const Lock lock(mutex_);
  if (held_) begin();
  held_ = false;
}

void Collection::heard() noexcept {
  const Lock lock(mutex_);
  fruitless_ = 0;
  silent_ = false;
}

Collection::State Collection::state() const noexcept {
  const Lock lock(mutex_);
  if (state_.collecting && silent_) return {true, "no_records"};
  return state_;
}

bool Collection::collecting() const noexcept {
  const Lock lock(mutex_);
  return state_.collecting;
}

bool Collection::may_flush() const noexcept {
  const Lock lock(mutex_);
  return state_.collecting || held_;
}

std::uint64_t Collection::pauses() const noexcept {
  const Lock lock(mutex_);
  return pauses_;
}

std::uint64_t Collection::rearms() const noexcept {
  const Lock lock(mutex_);
  return rearms_;
}

std::uint64_t Collection::silent_rearms() const noexcept {
  const Lock lock(mutex_);
  return silent_rearms_;
}

}  // namespace argus
