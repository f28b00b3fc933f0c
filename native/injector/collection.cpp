#include "collection.hpp"

#include <cstdio>

namespace argus {
namespace {

constexpr std::uint64_t kFruitlessLimit = 3;

/// What CUPTI's refusals mean to us; all others go by their number. Source: cupti_result.h of 12.9 and 13.5, and for
/// 15 "CUPTI Compatibility and Requirements" in NVIDIA's documentation.
struct Refusal {
  abi::Result result;
  const char* reason;
};
constexpr Refusal kRefusals[] = {
    {15, "driver_unfit"},      // CUPTI_ERROR_NOT_INITIALIZED: no driver, or too old a one
    {26, "hardware_busy"},     // CUPTI_ERROR_HARDWARE_BUSY: another process has the GPU's counters
    {35, "privileges"},        // CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
    {39, "other_subscriber"},  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    {40, "privileges"},        // CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
    {41, "confidential"},      // CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED
};

using Lock = std::lock_guard<std::mutex>;

}  // namespace

bool Collection::begin() noexcept {
  const abi::Result result = cupti_->start(request_, complete_, calls_);
  char reason[sizeof state_.reason] = {};
  if (result != abi::kSuccess) std::snprintf(reason, sizeof reason, "cupti_error_%d", result);
  for (const Refusal& refusal : kRefusals)
    if (refusal.result == result) std::snprintf(reason, sizeof reason, "%s", refusal.reason);
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
  cupti_->stop();
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

void Collection::record(LaunchCalls calls) noexcept {
  const Lock lock(mutex_);
  calls_ = calls;
  if (state_.collecting) cupti_->record(calls);
}

void Collection::stop(const char* reason) noexcept {
  const Lock lock(mutex_);
  if (final_) return;
  if (state_.collecting) cupti_->stop();
  final_ = true;
  set(false, reason);
}

bool Collection::hold() noexcept {
  const Lock lock(mutex_);
  if (!state_.collecting) return false;
  cupti_->stop();
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
