#pragma once

#include <cstddef>
#include <cstdint>

#include "page.hpp"
#include "words.hpp"

namespace argus::nccl {

/// A communicator that NCCL told us of. Its context, as NCCL holds it, is a Handle of its index and generation.
struct Communicator {
  std::uint32_t generation = 0;
  std::uint32_t state = 0;  ///< 0: never used, else page::kLive or page::kFinalized, or kClaimed
  std::uint64_t ended = 0;  ///< finalized as which one of the process
  page::Communicator* page = nullptr;
  void* theirs = nullptr;  ///< context of the former plugin
  bool chained = false;

  static constexpr std::uint32_t kClaimed = 3;
};

/// An event of which something is asked later: a collective by its network operations, any by the former plugin.
struct Slot {
  std::uint32_t generation = 0;
  std::uint32_t communicator = 0;  ///< index and generation of the communicator
  std::uint32_t communicator_generation = 0;
  std::uint32_t function = 0;
  std::uint64_t type = 0;
  std::uint64_t sequence = 0;
  std::uint64_t start_ns = 0;
  std::uint64_t finish_ns = 0;    ///< end of the last network operation so far; 0: none has ended
  std::uint32_t outstanding = 0;  ///< network operations that have started and not stopped
  bool wanted = false;            ///< the former plugin was given this event
  void* theirs = nullptr;
};

/// Events in the order of their starts, the oldest overwritten: nothing frees them, as their children and records
/// may come at any time after their stop. 1 MiB, of which only what is used becomes memory.
class Ring {
 public:
  static constexpr std::uint32_t kSlots = 1U << 14U;

  /// Any thread. `index` of the slot.
  Slot& claim(std::uint32_t& index) noexcept {
    index = add(cursor_, 1U) % kSlots;
    Slot& slot = slots_[index];
    add(slot.generation, 1U);
    return slot;
  }
  /// `index` is below kSlots. Null: the slot has another event by now.
  Slot* find(std::uint32_t index, std::uint32_t generation, std::uint32_t generations) noexcept {
    Slot& slot = slots_[index];
    return load(slot.generation) % generations == generation ? &slot : nullptr;
  }

 private:
  std::uint32_t cursor_ = 0;
  Slot slots_[kSlots] = {};
};

/// A transfer of one operation on one channel, with its steps: at most eight are in flight (NCCL_STEPS).
struct Operation {
  static constexpr std::uint32_t kSteps = 16;
  static constexpr std::uint32_t kNone = kSteps;

  struct Step {
    std::uint64_t since_ns = 0;  ///< in its state since
    std::uint32_t number = 0;
    std::uint32_t state = 0;  ///< 0: none runs; 1: started; else 2 plus the index of the state
  };

  std::uint32_t generation = 0;
  std::uint32_t used = 0;
  std::uint32_t communicator = 0;
  std::uint32_t communicator_generation = 0;
  std::uint64_t last_ns = 0;
  std::uint64_t fifo_ns = 0;  ///< NCCL up to 2.26: waits for the receiver's credit since; 0: does not
  void* collective = nullptr;
  page::Peer* peer = nullptr;
  bool wanted = false;
  void* theirs = nullptr;
  std::uint64_t entered_ns = 0;  ///< when the collective was handed over; 0: it is not known
  std::uint32_t function = 0;
  std::uint32_t oldest = kNone;  ///< place of the oldest step that waits; kNone: no step waits
  std::uint32_t shown = 0;       ///< its state, as the page counts it; 0: none
  std::uint64_t left_ns[page::kStepStates] = {};  ///< when the last step left the state
  Step steps[kSteps] = {};
};

/// Slots of operations; each is given back by its stop. CollNet's never stop: what nobody touched for a minute while
/// others come is taken over. 4 MiB, of which only what is used becomes memory.
class Operations {
 public:
  static constexpr std::uint32_t kSlots = 1U << 13U;
  static constexpr std::uint64_t kIdleNs = 60'000'000'000;

  /// Null: all that were looked at are in use. `taken_over`: the slot's operation never stopped.
  Operation* claim(std::uint64_t now, std::uint32_t& index, bool& taken_over) noexcept {
    taken_over = false;
    index = load(freed_);  // likely in the cache still, and no more memory than there are operations at once
    if (Operation* const operation = take(index)) return operation;
    for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
      index = add(cursor_, 1U) % kSlots;
      if (Operation* const operation = take(index)) return operation;
    }
    for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
      index = add(cursor_, 1U) % kSlots;
      Operation& operation = slots_[index];
      if (now - load(operation.last_ns) > kIdleNs && now > load(operation.last_ns)) {
        store(operation.last_ns, now);
        taken_over = true;
        return &operation;
      }
    }
    return nullptr;
  }
  void give_back(Operation& operation) noexcept {
    store(freed_, static_cast<std::uint32_t>(&operation - slots_));
    __atomic_store_n(&operation.used, 0U, __ATOMIC_RELEASE);
  }
  Operation* find(std::uint32_t index, std::uint32_t generation, std::uint32_t generations) noexcept {
    if (index >= kSlots) return nullptr;
    Operation& operation = slots_[index];
    return load(operation.used) && load(operation.generation) % generations == generation ? &operation : nullptr;
  }
  /// The former plugin's handle of a step.
  void*& theirs(std::uint32_t index, std::uint32_t step) noexcept {
    return theirs_[index][step % Operation::kSteps];
  }

 private:
  static constexpr std::uint32_t kProbes = 16;

  Operation* take(std::uint32_t index) noexcept {
    Operation& operation = slots_[index];
    std::uint32_t free = 0;
    const bool taken = load(operation.used) == 0 && __atomic_compare_exchange_n(&operation.used, &free, 1U, false,
                                                                               __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    return taken ? &operation : nullptr;
  }

  std::uint32_t freed_ = 0;
  std::uint32_t cursor_ = 0;
  Operation slots_[kSlots] = {};
  void* theirs_[kSlots][Operation::kSteps] = {};
};

}  // namespace argus::nccl
