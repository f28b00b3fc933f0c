#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire.hpp"

namespace argus {

/// Joins kernels with the calls that launched them, by correlation id.
///
/// The two records come in different buffers, in any order: a kernel whose launch is not there yet waits
/// for one flush, then goes out with an unknown latency. A graph's kernels share one launch; only the first
/// of a replay that arrives has a latency of its own, those behind it wait for each other. Worker only.
class Launches {
 public:
  static constexpr std::size_t kPlaces = 1 << 16;  ///< launches remembered: more than are ever in flight
  static constexpr std::size_t kWaitingLimit = 1 << 16;
  static constexpr std::int64_t kUnknown = -1;

  struct Waiting {
    wire::Kernel kernel;
    std::uint64_t start_ticks;
    std::uint32_t correlation;
    bool of_graph;
  };

  Launches() : launches_(kPlaces) {}

  /// A launch call began. The runtime's call and the driver's below it may share an id: the earlier counts.
  void launch(std::uint32_t correlation, std::uint64_t start_ticks) noexcept {
    Launch& at = launches_[correlation % kPlaces];
    if (at.correlation == correlation && at.start_ticks != 0 && at.start_ticks <= start_ticks) return;
    at = {start_ticks, correlation, false};
  }

  /// Ticks from launch to start, or kUnknown; `found` false: the launch has not come yet.
  std::int64_t latency(std::uint32_t correlation, std::uint64_t start_ticks, bool of_graph, bool& found) noexcept {
    Launch& at = launches_[correlation % kPlaces];
    found = at.correlation == correlation && at.start_ticks != 0;
    if (!found || at.used_by_graph) return kUnknown;
    at.used_by_graph = of_graph;
    return start_ticks >= at.start_ticks ? static_cast<std::int64_t>(start_ticks - at.start_ticks) : kUnknown;
  }

  /// False: too many wait already.
  bool wait(const Waiting& waiting) {
    if (newer_.size() >= kWaitingLimit) return false;
    newer_.push_back(waiting);
    return true;
  }

  /// After a flush has been read: hands out the kernels that waited for it, launches found or not. Those for which
  /// `emit` returns false wait for the next one, too.
  template <class Emit>
  void flushed(Emit&& emit) {
    const auto emitted = [&](const Waiting& waiting) {
      bool found = false;
      return emit(waiting, latency(waiting.correlation, waiting.start_ticks, waiting.of_graph, found));
    };
    older_.erase(std::remove_if(older_.begin(), older_.end(), emitted), older_.end());
    older_.swap(newer_);
  }

 private:
  struct Launch {
    std::uint64_t start_ticks = 0;
    std::uint32_t correlation = 0;
    bool used_by_graph = false;
  };

  std::vector<Launch> launches_;
  std::vector<Waiting> older_;  ///< have waited for the last flush
  std::vector<Waiting> newer_;
};

}  // namespace argus
