#include "modes.hpp"

#include <algorithm>
#include <cmath>

// One clone for AVX2, picked when the library is loaded: twice as fast, same bits. Needs ifunc
// (glibc), and sanitizers instrument the resolver before they are ready.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ARGUS_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ARGUS_CLONES
#endif

namespace {

using Index = std::int64_t;

constexpr Index kMostPoints = 8192;
constexpr Index kMostValleys = kMostPoints / 2;
constexpr Index kBlock = 16;
constexpr double kKernelReach = 4.0;  // bandwidths
constexpr double kGridMargin = 3.0;   // bandwidths
constexpr double kBandwidthMinimum = 1e-12;
constexpr Index kTailMinEvents = 5;
constexpr double kRounding = 1e-9;  // log units
constexpr double kNormalIqr = 1.349;

/// Part of the window between two cuts. Its core, in which cuts are sought, leaves out the islands:
/// events at either end beyond a valley, too few for a mode (see _cuts in argus_core/modes.py).
struct Segment {
  Index begin;
  Index end;
  Index core_begin;
  Index core_end;
  Index depth;
};

/// A valley still in question, and the peak to its left.
struct Candidate {
  Index cut;
  double place;  // log units
  double height;
  double peak;
};

/// Caller's memory, laid out. The weights have room for a kernel's reach and a block at either end.
struct Workspace {
  double counts[kMostPoints];
  double to_next[kMostPoints];
  double weights[3 * kMostPoints + 2 * kBlock];
  double density[kMostPoints + kBlock];
  double kernel[kMostPoints];
  Candidate candidates[kMostValleys];
  Segment pending[1];  // continues for `capacity` in all
};

double quantile(const double* ascending, Index begin, Index end, double q) {
  const double position = q * static_cast<double>(end - begin - 1);
  const auto lower = static_cast<Index>(position);
  const double low = ascending[begin + lower];
  const double high = ascending[std::min(begin + lower + 1, end - 1)];
  return std::min(low + (position - static_cast<double>(lower)) * (high - low), high);
}

/// Sum of f over [0, count), in four partial sums: rounding stays close to numpy's pairwise sum.
template <typename F>
double sum(Index count, F f) {
  double partial[4] = {0.0, 0.0, 0.0, 0.0};
  Index i = 0;
  for (; i + 4 <= count; i += 4) {
    for (Index lane = 0; lane < 4; ++lane) partial[lane] += f(i + lane);
  }
  for (; i < count; ++i) partial[0] += f(i);
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

double deviation(const double* values, Index count) {
  const double n = static_cast<double>(count);
  // Relative to the first value: the logarithms of one mode share their leading digits.
  const double first = values[0];
  const double mean = sum(count, [=](Index i) { return values[i] - first; }) / n;
  const double squares = sum(count, [=](Index i) {
    const double d = values[i] - first - mean;
    return d * d;
  });
  return std::sqrt(squares / (n - 1.0));
}

/// density[j] = sum over d of kernel[|d|] * centre[j + d]; both padded, `centre` by `reach` + kBlock.
ARGUS_CLONES
void convolve(const double* centre, const double* kernel, Index reach, Index points, double* density) {
  for (Index block = 0; block < points; block += kBlock) {
    double sums[kBlock];
    const double* at = centre + block;
    for (Index lane = 0; lane < kBlock; ++lane) sums[lane] = kernel[0] * at[lane];
    for (Index d = 1; d <= reach; ++d) {
      const double height = kernel[d];
      const double* left = at - d;
      const double* right = at + d;
      for (Index lane = 0; lane < kBlock; ++lane) sums[lane] += height * (left[lane] + right[lane]);
    }
    for (Index lane = 0; lane < kBlock; ++lane) density[block + lane] = sums[lane];
  }
}

/// Gaussian KDE on the grid, up to a constant factor: linear binning, then direct convolution.
void estimate_density(const double* logs, Index count, double bandwidth, double origin, double step,
                      Index points, Workspace& work) {
  std::fill_n(work.counts, points, 0.0);
  std::fill_n(work.to_next, points, 0.0);
  const double last = static_cast<double>(points - 2);
  for (Index i = 0; i < count; ++i) {
    const double position = (logs[i] - origin) / step;
    const auto node = static_cast<Index>(std::min(std::max(position, 0.0), last));
    work.counts[node] += 1.0;
    work.to_next[node] += position - static_cast<double>(node);
  }
  const Index reach =
      std::min(static_cast<Index>(kKernelReach * bandwidth / step) + 1, points - 1);
  std::fill_n(work.weights, points + 2 * reach + 2 * kBlock, 0.0);
  double* centre = work.weights + reach;
  for (Index j = 0; j < points; ++j) centre[j] = work.counts[j] - work.to_next[j];
  for (Index j = 1; j < points; ++j) centre[j] += work.to_next[j - 1];
  const double scale = step / bandwidth;
  for (Index d = 0; d <= reach; ++d) {
    const double z = static_cast<double>(d) * scale;
    work.kernel[d] = std::exp(-0.5 * (z * z));
  }
  convolve(centre, work.kernel, reach, points, work.density);
}

/// Calls found(index) for each local minimum, ascending; the middle of a flat one.
template <typename F>
void for_each_valley(const double* density, Index points, F found) {
  bool fell = false;
  Index bottom = 0;
  for (Index j = 1; j < points; ++j) {
    if (density[j] < density[j - 1]) {
      fell = true;
      bottom = j;
    } else if (density[j] > density[j - 1]) {
      if (fell) found((bottom + j - 1) / 2);
      fell = false;
    }
  }
}

/// The valleys in question: at[0, size), the peak right of the last one, and the core [from, to).
struct Candidates {
  Candidate* at;
  Index size;
  double last_peak;
  Index from;
  Index to;

  double& peak(Index i) { return i < size ? at[i].peak : last_peak; }

  void drop(Index i) {
    peak(i + 1) = std::max(at[i].peak, peak(i + 1));
    std::copy(at + i + 1, at + size, at + i);
    --size;
  }

  /// Smallest segment first, across the higher of its two valleys.
  void merge_small(Index count, Index min_count) {
    while (size > 0) {
      Index segment = 0;
      Index smallest = count;
      for (Index i = 0; i <= size; ++i) {
        const Index events = (i < size ? at[i].cut : count) - (i > 0 ? at[i - 1].cut : 0);
        if (events < smallest) {
          smallest = events;
          segment = i;
        }
      }
      if (smallest >= min_count) return;
      if (segment == 0) {
        drop(0);
      } else if (segment == size || at[segment - 1].height >= at[segment].height) {
        drop(segment - 1);
      } else {
        drop(segment);
      }
    }
  }

  /// Of two boundaries closer than `spacing`, the one in the deeper valley stays.
  void merge_close(double spacing) {
    Index i = 0;
    while (i + 1 < size) {
      if (at[i + 1].place - at[i].place >= spacing) {
        ++i;
        continue;
      }
      drop(at[i].height >= at[i + 1].height ? i : i + 1);
      i = std::max<Index>(i - 1, 0);
    }
  }

  /// Shallowest valley first, until each is at most `prominence` of its lower peak.
  void merge_shallow(double prominence) {
    while (size > 0) {
      Index shallowest = 0;
      double worst = -1.0;
      for (Index i = 0; i < size; ++i) {
        const double share = at[i].height / std::min(at[i].peak, peak(i + 1));
        if (share > worst) {
          worst = share;
          shallowest = i;
        }
      }
      if (worst <= prominence) return;
      drop(shallowest);
    }
  }
};

/// The valleys that cut one segment's core of `count` events, and the core without its islands.
Candidates find_cuts(const double* events, const double* logs, Index count,
                     const ArgusModeTuning& tuning, Workspace& work) {
  Candidates candidates{work.candidates, 0, 0.0, 0, count};
  if (count < 2 * tuning.min_count || count < 2) return candidates;
  double bandwidth =
      1.06 * deviation(logs, count) * std::pow(static_cast<double>(count), -0.2);
  bandwidth = std::max(bandwidth, tuning.bandwidth_floor);
  bandwidth = std::max(bandwidth, tuning.bandwidth_floor_seconds / quantile(events, 0, count, 0.5));
  const double extent = logs[count - 1] - logs[0];
  // Within one bandwidth of each other all kernels are concave, so their sum has one peak.
  if (!(bandwidth > kBandwidthMinimum) || !(extent > bandwidth)) return candidates;
  const double origin = logs[0] - kGridMargin * bandwidth;
  const double span = extent + 2.0 * kGridMargin * bandwidth;
  const double wanted = std::ceil(3.0 * span / bandwidth) + 1.0;
  const auto points = static_cast<Index>(
      std::min(static_cast<double>(tuning.grid_points_most),
               std::max(static_cast<double>(tuning.grid_points_fewest), wanted)));
  const double step = span / static_cast<double>(points - 1);
  estimate_density(logs, count, bandwidth, origin, step, points, work);

  Index from = 0;
  for_each_valley(work.density, points, [&](Index valley) {
    const double place = static_cast<double>(valley) * step;
    const Index cut = std::lower_bound(logs, logs + count, origin + place) - logs;
    if (cut < tuning.min_count) {
      candidates.from = cut;
      return;
    }
    if (count - cut < tuning.min_count) {
      candidates.to = std::min(candidates.to, cut);
      return;
    }
    const double peak = *std::max_element(work.density + from, work.density + valley);
    candidates.at[candidates.size++] = {cut, place, work.density[valley], peak};
    from = valley;
  });
  if (candidates.size == 0) return candidates;
  candidates.last_peak = *std::max_element(work.density + from, work.density + points);
  candidates.merge_small(count, tuning.min_count);
  candidates.merge_close(tuning.boundary_spacing);
  candidates.merge_shallow(tuning.prominence);
  return candidates;
}

/// A leaf of the recursion without its tail, as a triple.
ArgusMode describe(const double* events, const double* logs, Segment leaf,
                   const ArgusModeTuning& tuning) {
  Index begin = leaf.begin;
  Index end = leaf.end;
  if (end - begin >= kTailMinEvents && std::isfinite(tuning.tail_log_ratio)) {
    const double middle = quantile(logs, begin, end, 0.5);
    const double iqr = quantile(logs, begin, end, 0.75) - quantile(logs, begin, end, 0.25);
    const double reach =
        std::max(tuning.tail_log_ratio, tuning.tail_deviations * iqr / kNormalIqr) + kRounding;
    const double* first = logs + begin;
    const double* last = logs + end;
    begin = std::lower_bound(first, last, middle - reach) - logs;
    end = std::upper_bound(first, last, middle + reach) - logs;
  }
  return {end - begin, quantile(events, begin, end, 0.5), quantile(events, begin, end, 0.99)};
}

}  // namespace

std::int64_t argus_numeric_abi(void) noexcept { return 4; }

std::int64_t argus_modes_workspace_bytes(std::int64_t capacity) noexcept {
  return static_cast<Index>(sizeof(Workspace)) + capacity * static_cast<Index>(sizeof(Segment));
}

std::int64_t argus_modes_split(const double* events, const double* logs, std::int64_t count,
                               const ArgusModeTuning* tuning, void* workspace,
                               std::int64_t workspace_bytes, ArgusMode* modes,
                               std::int64_t capacity) noexcept {
  if (events == nullptr || logs == nullptr || tuning == nullptr || workspace == nullptr ||
      modes == nullptr || count < 1 || tuning->min_count < 1 || tuning->grid_points_fewest < 2 ||
      tuning->grid_points_most < tuning->grid_points_fewest ||
      tuning->grid_points_most > kMostPoints) {
    return kArgusBadArgument;
  }
  // Segments are disjoint and hold min_count events or more: there are never more than this.
  if (capacity < count / tuning->min_count + 1 ||
      workspace_bytes < argus_modes_workspace_bytes(capacity)) {
    return kArgusShortBuffer;
  }
  auto& work = *static_cast<Workspace*>(workspace);
  Segment* const pending = work.pending;
  Index waiting = 0;
  Index found = 0;
  pending[waiting++] = {0, count, 0, count, 0};
  while (waiting > 0) {
    const Segment segment = pending[--waiting];
    const Index origin = segment.core_begin;
    const Index size = segment.core_end - origin;
    Candidates cuts{nullptr, 0, 0.0, 0, size};
    if (segment.depth <= tuning->max_depth) {
      cuts = find_cuts(events + origin, logs + origin, size, *tuning, work);
    }
    if (cuts.size == 0 && cuts.from == 0 && cuts.to == size) {
      modes[found++] = describe(events, logs, segment, *tuning);
      continue;
    }
    // Rightmost first, so that leaves come out ascending.
    Index end = segment.end;
    Index core_end = origin + cuts.to;
    for (Index i = cuts.size; i-- > 0;) {
      const Index begin = origin + cuts.at[i].cut;
      pending[waiting++] = {begin, end, begin, core_end, segment.depth + 1};
      end = core_end = begin;
    }
    pending[waiting++] = {segment.begin, end, origin + cuts.from, core_end, segment.depth + 1};
  }
  return found;
}

std::int64_t argus_modes_counts(const double* events, const double* logs, std::int64_t windows,
                                std::int64_t count, const ArgusModeTuning* tuning, void* workspace,
                                std::int64_t workspace_bytes, ArgusMode* modes,
                                std::int64_t capacity, std::int64_t* counts) noexcept {
  if (counts == nullptr || windows < 0) return kArgusBadArgument;
  for (Index window = 0; window < windows; ++window) {
    const Index begin = window * count;
    const Index found = argus_modes_split(events + begin, logs + begin, count, tuning, workspace,
                                          workspace_bytes, modes, capacity);
    if (found < 0) return found;
    Index* const of_window = counts + window * capacity;
    for (Index mode = 0; mode < capacity; ++mode) {
      of_window[mode] = mode < found ? modes[mode].count : 0;
    }
  }
  return 0;
}
