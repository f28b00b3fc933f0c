#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "buffer_pool.hpp"
#include "clock.hpp"
#include "collection.hpp"
#include "control.h"
#include "cupti.hpp"
#include "decoder.hpp"
#include "identity.hpp"
#include "link.hpp"
#include "names.hpp"
#include "recorder.hpp"

namespace argus {

/// The one thread of the library: reads filled buffers, sends their records, and every flush period asks
/// CUPTI for more. All signals but those of its own faults are blocked in it: they are the training's.
class Worker {
 public:
  /// `cupti` null: nothing is collected; the worker only tells the exporter why. `nccl`: where NCCL's launches lie,
  /// null as long as nobody has told; any thread may set it.
  Worker(const Settings& settings, const Identity& identity, Cupti* cupti, BufferPool& pool, Collection& collection,
         const std::atomic<const nccl::LaunchRing*>& nccl);

  /// Throws std::system_error where no thread can be made.
  void start();
  /// At exit: reads and sends what is there, and closes. A worker that takes longer than `limit` is left behind,
  /// but not within CUPTI: it is awaited there, and never enters it again. False: CUPTI has not returned for
  /// kCuptiLimit, and the process must not go on to CUDA's teardown. Not in a forked child.
  bool finish(std::chrono::milliseconds limit) noexcept;
  /// A tick now. Any thread.
  void tick_soon() noexcept;
  /// In a forked child: the thread is gone; lets go of the parent's connection.
  void forked() noexcept { link_.abandon(); }
  /// Any thread.
  void statistics(ArgusCuptiStatistics& out) const noexcept;

 private:
  void run() noexcept;
  void loop();
  void read(const BufferPool::Filled& buffer);
  void drain();
  void tick(bool last);
  void fetch(bool last);
  /// Has the launch calls recorded that are due: in their window all, else NCCL's; when to ask again.
  std::chrono::steady_clock::time_point turn_launches();
  bool enter_cupti() noexcept;
  void leave_cupti() noexcept;
  bool closed() noexcept;
  void overrun(bool at_tick);
  void judge_times();
  void judge_cost();
  void say_state(bool now);
  void publish_counters() noexcept;

  const Settings& settings_;
  const std::chrono::milliseconds period_;
  const Cupti* cupti_;
  BufferPool& pool_;
  Collection& collection_;
  const std::atomic<const nccl::LaunchRing*>& nccl_;
  NameTable names_;
  Link link_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Recorder> recorder_;

  LaunchCalls calls_ = LaunchCalls::kNone;
  std::string said_reason_;
  bool said_up_ = false;
  std::uint64_t said_connects_ = 0;
  std::chrono::steady_clock::time_point said_at_{};
  std::uint64_t judged_records_ = 0;
  std::uint64_t judged_invalid_ = 0;
  std::int64_t judged_offset_ns_ = 0;  ///< of the host's clock to the monotonic one
  int unjudged_ticks_ = 0;

  std::atomic<std::uint64_t> records_{0};
  std::atomic<std::uint64_t> dropped_cupti_{0};
  std::atomic<std::uint64_t> dropped_buffers_{0};
  std::atomic<std::uint64_t> dropped_invalid_{0};
  std::atomic<std::uint32_t> unlisted_{0};
  std::atomic<std::uint64_t> clock_changes_{0};
  std::atomic<std::uint64_t> name_count_{0};
  std::atomic<std::uint64_t> cpu_ns_{0};

  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> tick_now_{false};
  std::mutex done_mutex_;
  Condition done_changed_;
  bool done_ = false;
  bool in_cupti_ = false;  ///< the worker is; under done_mutex_, as `closed_`
  bool closed_ = false;    ///< CUPTI is closed to the worker
};

}  // namespace argus
