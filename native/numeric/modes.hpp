#pragma once

#include "export.hpp"

/// A mode configuration resolved for one window. Mirrors Tuning in argus_core/modes.py, which says
/// what each field means and why it has its value.
struct ArgusModeTuning {
  std::int64_t min_count;
  std::int64_t max_depth;
  std::int64_t grid_points_fewest;
  std::int64_t grid_points_most;  ///< at most 8192
  double prominence;
  double boundary_spacing;         ///< log units
  double bandwidth_floor;          ///< log units
  double bandwidth_floor_seconds;  ///< divided by the segment's median
  double tail_log_ratio;           ///< infinite: no tail
  double tail_deviations;
};

/// Events that belong together; type-7 quantiles in seconds.
struct ArgusMode {
  std::int64_t count;
  double p50;
  double p99;
};

/// Bytes of workspace that argus_modes_split needs for `capacity` modes: about 450 kB.
/// Any thread, O(1).
ARGUS_EXPORT std::int64_t argus_modes_workspace_bytes(std::int64_t capacity) noexcept;

/// Splits one window of durations into KDE modes and describes each; the twin of
/// _split_into_modes in argus_core/modes.py, which is its test oracle.
///
/// `events`: seconds, ascending, finite, > 0; `logs`: their natural logarithms; both `count` long.
/// `modes`: room for `capacity` >= count / min_count + 1, filled ascending by p50.
/// Events of no mode are tail: count less the sum of counts.
///
/// Returns the number of modes, or an ArgusNumericError. Keeps no state, allocates nothing, throws
/// nothing; any number of threads, each with a workspace of its own (aligned to 8 bytes).
/// Cost: O(count) a level of recursion, plus 256-8192 grid points times the kernel's width a segment;
/// about 30 us for 1,000 events in three modes.
ARGUS_EXPORT std::int64_t argus_modes_split(const double* events, const double* logs,
                                            std::int64_t count, const ArgusModeTuning* tuning,
                                            void* workspace, std::int64_t workspace_bytes,
                                            ArgusMode* modes, std::int64_t capacity) noexcept;

/// Events of each mode of several windows: as many calls of argus_modes_split.
///
/// `events`, `logs`: one window after the other, each of `count` events, as argus_modes_split takes them.
/// `modes`: room for `capacity`, used again by each; `counts`: room for `windows` times `capacity`, filled
/// window by window, 0 after the last mode of each.
///
/// Returns 0, or the ArgusNumericError of the first window that has one.
ARGUS_EXPORT std::int64_t argus_modes_counts(const double* events, const double* logs,
                                             std::int64_t windows, std::int64_t count,
                                             const ArgusModeTuning* tuning, void* workspace,
                                             std::int64_t workspace_bytes, ArgusMode* modes,
                                             std::int64_t capacity, std::int64_t* counts) noexcept;
