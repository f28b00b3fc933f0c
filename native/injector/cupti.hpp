#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cupti_abi.hpp"
#include "environment.hpp"

namespace argus {

/// Calls that launch kernels and of which CUPTI writes records: none; those that NCCL makes, which compiled code makes
/// too; all.
enum class LaunchCalls { kNone, kOfNccl, kAll };

/// The libcupti of this process, opened by dlopen: its entry points, and which kinds of records are on.
/// Never subscribes (a single slot that profilers need), never sets a timestamp callback, never finalises:
/// all of that is process-wide and belongs to others.
class Cupti {
 public:
  /// Opens, in this order: ARGUS_CUPTI_LIBRARY and nothing else; the copy that is mapped already (torch's); one
  /// beside the mapped libraries of CUDA or torch, as wheels and toolkits lay them out; in CUDA_HOME or CUDA_PATH;
  /// by name; in /usr/local/cuda. Of the mapped libcudart's major version, or of 13 and 12. Null with a `reason` fit for a label:
  /// cupti_missing, cupti_incomplete, cupti_version, cupti_known_bad, cupti_error_NUMBER.
  static std::unique_ptr<Cupti> open(const Settings& settings, std::string& reason);

  std::uint32_t version() const noexcept { return version_; }
  bool may_refuse_buffer() const noexcept { return version_ >= abi::kMayRefuseBuffer; }
  /// A sentence on why this version may record nothing; empty: none is known.
  const char* why_silent() const noexcept;
  /// Graph launches keep their correlation ids however often launch calls are switched on and off.
  bool graph_launches_survive_switching() const noexcept;

  /// CUDA is in use already when launch calls are switched on: they need their kinds from the first time on.
  void context_exists() noexcept { context_exists_ = true; }

  /// Registers our buffer callbacks and switches the kinds on; also takes the callbacks back.
  /// The result of the first call that failed: without kernels there is nothing to collect, a failure of
  /// copies or memory sets alone is tolerated.
  abi::Result start(abi::RequestCallback request, abi::CompleteCallback complete, LaunchCalls calls) noexcept;
  /// Switches all kinds off; buffers that CUPTI still fills come at the next flush.
  void stop() noexcept;

  /// These launch calls from now on, while the other kinds stay on.
  void record(LaunchCalls calls) noexcept;

  /// Asks for all buffers whose records are complete. Never forced but at exit: a forced flush hands out
  /// running kernels without an end, and never again with one (PyTorch, monitor.py).
  void flush() const noexcept { flush_all_(0); }
  void flush_at_exit() const noexcept { flush_all_(abi::kFlushForced); }

  /// Next record of a buffer, in place; null at the end. `record` null: the first.
  void* next(std::uint8_t* buffer, std::size_t valid, void* record) const noexcept {
    return next_record_(buffer, valid, &record) == abi::kSuccess ? record : nullptr;
  }

  /// Records that CUPTI dropped since the last call. Worker only: Kineto met a lock inversion elsewhere.
  std::uint64_t take_dropped() const noexcept;

  /// CUPTI's clock, which stamps its records; false where it cannot be read.
  bool timestamp(std::uint64_t& ticks) const noexcept {
    return timestamp_ && timestamp_(&ticks) == abi::kSuccess;
  }

 private:
  Cupti() = default;
  bool resolve(void* library) noexcept;
  using EnableCall = abi::Result (*)(std::uint32_t, std::uint8_t);

  void switch_calls(std::uint32_t kind, EnableCall enable, LaunchCalls calls) noexcept;

  std::uint32_t version_ = 0;
  bool context_exists_ = false;
  LaunchCalls calls_ = LaunchCalls::kNone;
  abi::Result (*get_version_)(std::uint32_t*) = nullptr;
  abi::Result (*register_callbacks_)(abi::RequestCallback, abi::CompleteCallback) = nullptr;
  abi::Result (*enable_)(std::uint32_t) = nullptr;
  abi::Result (*disable_)(std::uint32_t) = nullptr;
  abi::Result (*next_record_)(std::uint8_t*, std::size_t, void**) = nullptr;
  abi::Result (*flush_all_)(std::uint32_t) = nullptr;
  abi::Result (*dropped_)(void*, std::uint32_t, std::size_t*) = nullptr;
  abi::Result (*timestamp_)(std::uint64_t*) = nullptr;
  EnableCall enable_runtime_api_ = nullptr;
  EnableCall enable_driver_api_ = nullptr;
};

}  // namespace argus
