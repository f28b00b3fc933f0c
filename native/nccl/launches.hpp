#pragma once

#include <cstdint>

#include "event.hpp"
#include "words.hpp"

namespace argus::nccl {

/// A kernel that NCCL launches: the stretch of time around the driver's call, on the calling thread, and for whom.
struct Launch {
  std::uint32_t number = 0;  ///< of the launch, from 1 on; 0: none, or it is being written
  std::uint32_t thread = 0;  ///< pthread_self(), the lower half
  std::uint32_t system_thread = 0;
  std::uint32_t slot = 0;  ///< of the communicator in the page, and how often that was given away
  std::uint32_t generation = 0;
  std::uint32_t sequence = 0;    ///< of the first operation, plus one; 0: it has none, or is not told yet
  std::uint32_t operations = 0;  ///< of the kernel, as far as NCCL has told them
  std::uint32_t told = 0;        ///< 1: it has told them all
  std::uint64_t begin_ns = 0;    ///< CLOCK_REALTIME
  std::uint64_t end_ns = 0;      ///< 0: the call has not returned
};

/// The last launches of this process, the oldest overwritten: what libargus_cupti joins with the kernels that CUPTI
/// reports seconds later. Several threads write, each a slot of its own; any thread may read. 1.5 MiB, of which only
/// what is used becomes memory; at 1,000 launches a second it holds half a minute.
class LaunchRing {
 public:
  static constexpr int kInterface = 1;  ///< libargus_cupti of another release may be here
  static constexpr std::uint32_t kSlots = 1U << 15U;

  /// `launch.number` is set.
  void add(Launch& launch) noexcept {
    launch.number = nccl::add(last_, 1U) + 1;
    Launch& at = slots_[launch.number % kSlots];
    put(at.number, 0U);
    put(at.thread, launch.thread);
    put(at.system_thread, launch.system_thread);
    put(at.slot, launch.slot);
    put(at.generation, launch.generation);
    put(at.sequence, 0U);
    put(at.operations, 0U);
    put(at.told, 0U);
    put(at.begin_ns, launch.begin_ns);
    put(at.end_ns, std::uint64_t{0});
    put(at.number, launch.number);
  }
  /// The slot of a launch, for the thread that launched it; null: overwritten.
  Launch* find(std::uint32_t number) noexcept {
    Launch& at = slots_[number % kSlots];
    return get(at.number) == number ? &at : nullptr;
  }
  template <class T>
  static void put(T& word, T value) noexcept {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }

  /// Whether more is to come: CUPTI's records of the calls are wanted as long as it is.
  void watch(bool on) noexcept { put(watched_, on ? 1U : 0U); }
  bool watched() const noexcept { return get(watched_) != 0; }

  std::uint32_t last() const noexcept { return get(last_); }
  /// A copy; false: it is overwritten, or being written.
  bool read(std::uint32_t number, Launch& out) const noexcept {
    const Launch& at = slots_[number % kSlots];
    out.number = get(at.number);
    out.thread = get(at.thread);
    out.system_thread = get(at.system_thread);
    out.slot = get(at.slot);
    out.generation = get(at.generation);
    out.sequence = get(at.sequence);
    out.operations = get(at.operations);
    out.told = get(at.told);
    out.begin_ns = get(at.begin_ns);
    out.end_ns = get(at.end_ns);
    return number && out.number == number && get(at.number) == number;
  }

 private:
  template <class T>
  static T get(const T& word) noexcept {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  }

  std::uint32_t last_ = 0;
  std::uint32_t watched_ = 0;
  Launch slots_[kSlots] = {};
};

/// Writes the ring from NCCL's events, on the threads that launch. NCCL says first that it launches a kernel, and for
/// which communicator (version 5 of the interface and later), then by a group of events what the kernel does. Takes no
/// lock, allocates nothing; makes one system call, at the first launch of a thread.
class Launches {
 public:
  /// An event begins, of the communicator in a slot of the page.
  void start(const Event& event, std::uint32_t slot, std::uint32_t generation) noexcept;
  /// An event of this type ends.
  void stop(std::uint64_t type) noexcept;

  LaunchRing& ring() noexcept { return ring_; }

 private:
  void begin(std::uint32_t slot, std::uint32_t generation) noexcept;
  void tell(const Event& event) noexcept;

  LaunchRing ring_;
};

}  // namespace argus::nccl
