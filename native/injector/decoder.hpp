#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "budget.hpp"
#include "clock.hpp"
#include "cupti.hpp"
#include "launches.hpp"
#include "link.hpp"
#include "names.hpp"
#include "nccl_launches.hpp"

namespace argus {

/// From CUPTI's records to ours. Worker only.
class Decoder {
 public:
  Decoder(const Cupti& cupti, const Clock& clock, NameTable& names, Link& link, const Settings& settings);

  /// Hands every record of a buffer to the link.
  void buffer(std::uint8_t* data, std::size_t valid);
  /// Records in a buffer that are kernels, copies or memory sets.
  std::size_t count(std::uint8_t* data, std::size_t valid) const noexcept;
  /// Launch calls are recorded from now on, or no longer. What was recorded until now may still come.
  void expect_launches(bool expected) noexcept {
    launches_expected_ = expected;
    flushes_with_launches_ = kFlushesWithLaunches;
  }
  /// NCCL says for whom it launches kernels; calls of its are recorded from now on.
  void join(const nccl::LaunchRing& ring);
  /// The buffers of a flush have been read: kernels that waited for their launch over it go out. `last`: those whose
  /// launch goes on, too.
  void flushed(bool last);

  std::uint64_t records() const noexcept { return records_; }
  /// Records whose times make no sense: zero, backwards, an hour old or in the future.
  std::uint64_t invalid() const noexcept { return invalid_; }
  /// Kernels of NCCL whose operations were overwritten before they could be told.
  std::uint64_t unlisted() const noexcept { return nccl_ ? nccl_->unlisted() : 0; }
  /// Whether recording has cost the training more than it may.
  bool too_costly() const noexcept { return budget_.exceeded(); }

 private:
  bool times(const void* record, std::size_t start, std::size_t end, wire::Kernel& kernel) noexcept;
  void call(const void* record, bool of_driver) noexcept;
  void kernel(const void* record);
  bool of_nccl(const wire::Kernel& kernel) const noexcept;
  void send(const wire::Kernel& kernel, std::uint32_t correlation);
  void copy(const void* record);
  void set(const void* record);
  std::uint32_t copy_name(std::uint8_t kind, std::uint8_t from, std::uint8_t to);
  std::uint32_t set_name(std::uint16_t memory);

  const Cupti& cupti_;
  const Clock& clock_;
  NameTable& names_;
  Link& link_;
  Launches launches_;
  std::unique_ptr<NcclLaunches> nccl_;  ///< null: NCCL says nothing
  const LaunchTimes launch_times_;
  const bool with_launches_;
  const bool with_graph_launches_;
  /// After the last launch call: one brings its record, and the other ends the wait of its kernel.
  static constexpr int kFlushesWithLaunches = 2;
  bool launches_expected_ = false;
  int flushes_with_launches_ = 0;
  std::uint64_t earliest_ns_ = 0;
  std::uint64_t latest_ns_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t invalid_ = 0;
  Budget budget_;
  std::uint32_t copy_names_[11][8][8] = {};
  std::uint32_t set_names_[8] = {};
};

}  // namespace argus
