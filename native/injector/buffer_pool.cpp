#include "buffer_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace argus {

BufferPool::BufferPool(std::size_t count, std::size_t bytes, bool may_refuse)
    : count_(count), buffers_(2 * count), bytes_(bytes), may_refuse_(may_refuse) {
  const std::size_t slots = buffers_ + kReserveBuffers;
  places_.assign(slots, Place::kUnused);
  queue_.resize(slots);
  free_.reserve(buffers_);
  reserve_.reserve(kReserveBuffers);
  mapped_ = buffers_ * bytes_ + (kReserveBuffers + 1) * kReserveBytes;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::uint8_t*>(memory);
  for (; in_use_ < count_; ++in_use_) {
    free_.push_back(in_use_);
    places_[in_use_] = Place::kFree;
  }
  for (std::size_t slot = buffers_; slot < slots; ++slot) {
    reserve_.push_back(slot);
    places_[slot] = Place::kFree;
  }
}

BufferPool::~BufferPool() { munmap(memory_, mapped_); }

std::uint8_t* BufferPool::address(std::size_t slot) const noexcept {
  return slot <= buffers_ ? memory_ + slot * bytes_
                          : memory_ + buffers_ * bytes_ + (slot - buffers_) * kReserveBytes;
}

std::optional<std::size_t> BufferPool::slot_of(const std::uint8_t* data) const noexcept {
  if (data < memory_ || data >= memory_ + mapped_) return std::nullopt;
  const auto offset = static_cast<std::size_t>(data - memory_);
  const std::size_t proper = buffers_ * bytes_;
  const std::size_t slot =
      offset < proper ? offset / bytes_ : buffers_ + (offset - proper) / kReserveBytes;
  if (address(slot) != data) return std::nullopt;
  return slot;
}

void BufferPool::request(std::uint8_t** data, std::size_t* size) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!free_.empty()) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    places_[slot] = Place::kLent;
    *data = address(slot);
    *size = bytes_;
    return;
  }
  if (may_refuse_) {
    *data = nullptr;
    *size = 0;
    return;
  }
  *size = kReserveBytes;
  if (!reserve_.empty()) {
    const std::size_t slot = reserve_.back();
    reserve_.pop_back();
    places_[slot] = Place::kLent;
    *data = address(slot);
    return;
  }
  *data = address(buffers_ + kReserveBuffers);
  overrun_ = true;
}

void BufferPool::complete(std::uint8_t* data, std::size_t valid) noexcept {
  bool tell = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto slot = slot_of(data);
    if (slot == buffers_ + kReserveBuffers) {
      voided_bytes_ += valid;
      return;
    }
    if (!slot || places_[*slot] != Place::kLent) {
      ++foreign_;
      return;
    }
    if (valid == 0) {
      places_[*slot] = Place::kFree;
      (is_reserve(*slot) ? reserve_ : free_).push_back(*slot);
      return;
    }
    places_[*slot] = Place::kQueued;
    queue_[(head_ + queued_) % queue_.size()] = {*slot, valid};
    tell = queued_++ == 0;
  }
  if (tell) filled_.notify_one();
}

BufferPool::Filled BufferPool::pop() noexcept {
  const auto [slot, valid] = queue_[head_];
  head_ = (head_ + 1) % queue_.size();
  --queued_;
  const std::size_t size = is_reserve(slot) ? kReserveBytes : bytes_;
  return {address(slot), std::min(valid, size), is_reserve(slot)};
}

std::optional<BufferPool::Filled> BufferPool::take(std::chrono::steady_clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  filled_.wait_until(lock, until, [this] { return queued_ > 0 || woken_; });
  woken_ = false;
  if (queued_ == 0) return std::nullopt;
  return pop();
}

std::optional<BufferPool::Filled> BufferPool::take() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queued_ == 0) return std::nullopt;
  return pop();
}

void BufferPool::give_back(const Filled& buffer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto slot = slot_of(buffer.data);
  if (!slot) return;
  places_[*slot] = Place::kFree;
  (is_reserve(*slot) ? reserve_ : free_).push_back(*slot);
}

void BufferPool::wake() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
  }
  filled_.notify_one();
}

void BufferPool::replace_lent() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lent = static_cast<std::size_t>(
      std::count(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(in_use_), Place::kLent));
  const std::size_t missing = in_use_ - lent < count_ ? count_ - (in_use_ - lent) : 0;
  for (std::size_t added = 0; added < missing && in_use_ < buffers_; ++added, ++in_use_) {
    places_[in_use_] = Place::kFree;
    free_.push_back(in_use_);
  }
}

bool BufferPool::at_ease() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return 2 * free_.size() >= count_;
}

bool BufferPool::overrun() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return overrun_;
}

bool BufferPool::recovered() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!overrun_ || queued_ > 0) return false;
  overrun_ = false;
  return true;
}

std::size_t BufferPool::free_buffers() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_.size();
}

std::uint64_t BufferPool::foreign() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return foreign_;
}

std::uint64_t BufferPool::replaced() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_use_ - count_;
}

std::uint64_t BufferPool::take_voided_bytes() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t bytes = voided_bytes_;
  voided_bytes_ = 0;
  return bytes;
}

}  // namespace argus
