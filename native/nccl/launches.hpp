#pragma once

#include <cstdint>

#include "event.hpp"
#include "page.hpp"
#include "words.hpp"

namespace argus::nccl {

/// What a launch does, in one word, so that it is read whole: function, peer of a send or receive, sequence number of
/// a collective.
struct LaunchedOperation {
  static constexpr std::uint32_t kNoPeer = 0xFFFFFF;

  std::uint32_t function = 0;    ///< index in page::kFunctionNames
  std::uint32_t peer = kNoPeer;  ///< rank in the communicator; kNoPeer: a collective
  std::uint32_t sequence = 0;    ///< of a collective; NCCL gives sends and receives no number

  bool is_collective() const noexcept { return peer == kNoPeer; }
  std::uint64_t word() const noexcept {
    return std::uint64_t{function} << 56U | std::uint64_t{peer & kNoPeer} << 32U | sequence;
  }
  static LaunchedOperation of(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 56U), static_cast<std::uint32_t>(word >> 32U) & kNoPeer,
            static_cast<std::uint32_t>(word)};
  }
};

/// A kernel that NCCL launches: the stretch of time around the driver's call, on the calling thread, and for whom.
struct Launch {
  std::uint32_t number = 0;  ///< of the launch, from 1 on; 0: none, or it is being written
  std::uint32_t thread = 0;  ///< pthread_self(), the lower half
  std::uint32_t system_thread = 0;
  std::uint32_t slot = 0;  ///< of the communicator in the page, and how often that was given away
  std::uint32_t generation = 0;
  std::uint32_t operations = 0;  ///< of the kernel, as far as NCCL has told them
  std::uint32_t told = 0;        ///< 1: it has told them all
  std::uint32_t list = 0;        ///< number of the list of what it does after its first operation; 0: that is all
  std::uint32_t functions = 0;   ///< a bit each, by their index in page::kFunctionNames
  std::uint64_t first = 0;       ///< its first operation
  std::uint64_t bytes = 0;       ///< of the messages of its collectives, and of what it sends to others
  std::uint64_t begin_ns = 0;    ///< CLOCK_REALTIME
  std::uint64_t end_ns = 0;      ///< 0: the call has not returned
};

/// The last launches of this process, the oldest overwritten: what libargus_cupti joins with the kernels that CUPTI
/// reports seconds later. Several threads write, each a slot of its own; any thread may read. 3.3 MiB, of which only
/// what is used becomes memory; at 1,000 launches a second it holds half a minute.
class LaunchRing {
 public:
  static constexpr int kInterface = 3;  ///< libargus_cupti of another release may be here
  static constexpr std::uint32_t kSlots = 1U << 15U;
  /// Operations of a launch that are told one by one; of the others, how many there are.
  static constexpr std::uint32_t kTold = 16;
  /// Of launches with several operations, 1 MiB: at 250 a second half a minute, too.
  static constexpr std::uint32_t kLists = 1U << 13U;

  /// `launch.number` is set.
  void add(Launch& launch) noexcept {
    launch.number = nccl::add(last_, 1U) + 1;
    Launch& at = slots_[launch.number % kSlots];
    put(at.number, 0U);
    put(at.thread, launch.thread);
    put(at.system_thread, launch.system_thread);
    put(at.slot, launch.slot);
    put(at.generation, launch.generation);
    put(at.operations, 0U);
    put(at.told, 0U);
    put(at.list, 0U);
    put(at.functions, 0U);
    put(at.first, std::uint64_t{0});
    put(at.bytes, std::uint64_t{0});
    put(at.begin_ns, launch.begin_ns);
    put(at.end_ns, std::uint64_t{0});
    put(at.number, launch.number);
  }
  /// The slot of a launch, for the thread that launched it; null: overwritten.
  Launch* find(std::uint32_t number) noexcept {
    Launch& at = slots_[number % kSlots];
    return get(at.number) == number ? &at : nullptr;
  }
  /// One more operation of a launch, for the thread that launched it. `bytes`: that it moves to others.
  void tell(Launch& launch, const LaunchedOperation& operation, std::uint64_t bytes) noexcept {
    put(launch.functions, get(launch.functions) | 1U << operation.function);
    put(launch.bytes, get(launch.bytes) + bytes);
    const std::uint32_t before = get(launch.operations);
    if (before == 0) {
      put(launch.first, operation.word());
    } else if (before < kTold) {
      if (before == 1) put(launch.list, new_list());
      const std::uint32_t number = get(launch.list);
      List& list = lists_[number % kLists];
      if (get(list.number) == number) put(list.operations[before - 1], operation.word());
    }
    put(launch.operations, before + 1);
  }
  template <class T>
  static void put(T& word, T value) noexcept {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }

  /// What the exporter reads of these communicators, where whoever learns how long a kernel took may count it.
  void shows(page::Communicator* communicators) noexcept { put(shown_, communicators); }
  page::Communicator* shown() const noexcept { return get(shown_); }

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
    out.told = get(at.told);
    out.operations = get(at.operations);
    out.list = get(at.list);
    out.functions = get(at.functions);
    out.first = get(at.first);
    out.bytes = get(at.bytes);
    out.begin_ns = get(at.begin_ns);
    out.end_ns = get(at.end_ns);
    return number && out.number == number && get(at.number) == number;
  }

  /// The first operations of a launch that was read and has told them all; how many, up to kTold. 0: overwritten.
  std::uint32_t operations(const Launch& launch, LaunchedOperation (&out)[kTold]) const noexcept {
    const std::uint32_t count = launch.operations < kTold ? launch.operations : kTold;
    if (count == 0) return 0;
    out[0] = LaunchedOperation::of(launch.first);
    if (count == 1) return 1;
    const List& list = lists_[launch.list % kLists];
    const bool there = get(list.number) == launch.list;
    for (std::uint32_t at = 1; at < count; ++at) out[at] = LaunchedOperation::of(get(list.operations[at - 1]));
    return there && get(list.number) == launch.list ? count : 0;
  }

 private:
  struct List {
    std::uint32_t number = 0;  ///< from 1 on
    std::uint64_t operations[kTold - 1] = {};
  };

  template <class T>
  static T get(const T& word) noexcept {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  }
  std::uint32_t new_list() noexcept {
    const std::uint32_t number = nccl::add(last_list_, 1U) + 1;
    put(lists_[number % kLists].number, number);
    return number;
  }

  std::uint32_t last_ = 0;
  std::uint32_t last_list_ = 0;
  std::uint32_t watched_ = 0;
  page::Communicator* shown_ = nullptr;
  Launch slots_[kSlots] = {};
  List lists_[kLists] = {};
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
