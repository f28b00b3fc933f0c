#include "w1.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace {

using Index = std::int64_t;

// A key packs 33 bits of F above 31 bits of rank; three passes of 11 bits sort it by F.
constexpr int kRankBits = 31;
constexpr int kDigitBits = 11;
constexpr int kPasses = 3;
constexpr std::size_t kDigits = 1U << kDigitBits;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
// Below this many ranks clearing the counters of a radix sort (24 KiB a row) costs more than comparing keys.
constexpr Index kRadixFrom = 160;
constexpr double kKeyScale = 8589934591.0;  // 2^33 - 1

constexpr std::size_t digit(std::uint64_t key, int pass) {
  return static_cast<std::size_t>(key >> (kRankBits + pass * kDigitBits)) & (kDigits - 1);
}

/// Orders `keys` by F and, where F is alike, by rank, with `spare` as the second buffer; returns the one that holds the result.
std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* spare, Index count) {
  if (count < kRadixFrom) {
    std::sort(keys, keys + count);  // the same order: radix passes are stable, and keys come in order of rank
    return keys;
  }
  std::uint32_t starts[kPasses][kDigits] = {};
  for (Index i = 0; i < count; ++i) {
    for (int pass = 0; pass < kPasses; ++pass) ++starts[pass][digit(keys[i], pass)];
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    std::uint32_t* const start = starts[pass];
    // Far from every mode all F are alike: nothing to order.
    if (start[digit(keys[0], pass)] == count) continue;
    std::uint32_t before = 0;
    for (std::size_t d = 0; d < kDigits; ++d) before += std::exchange(start[d], before);
    for (Index i = 0; i < count; ++i) spare[start[digit(keys[i], pass)]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

/// Scratch of one ranking, cut out of the caller's workspace.
struct Ranking {
  std::uint64_t* keys;
  std::uint64_t* spare;
  double* distance;  ///< out: sum over the others of |F_i - F_j|

  Ranking(void* workspace, Index ranks)
      : keys(static_cast<std::uint64_t*>(workspace)),
        spare(keys + ranks),
        distance(reinterpret_cast<double*>(spare + ranks)) {}

  static Index bytes(Index ranks) {
    return ranks * static_cast<Index>(2 * sizeof(std::uint64_t) + sizeof(double));
  }

  double* end(Index ranks) const { return distance + ranks; }

  /// Ranks one row of F into `distance`. False where all F are alike, and nothing is to be added.
  bool rank(const double* row, Index ranks) {
    double total = 0.0;
    double low = row[0];
    double high = row[0];
    for (Index r = 0; r < ranks; ++r) {
      total += row[r];
      low = std::min(low, row[r]);
      high = std::max(high, row[r]);
    }
    if (low == high) return false;
    for (Index r = 0; r < ranks; ++r) {
      const double inside = std::min(std::max(row[r], 0.0), 1.0);
      keys[r] = static_cast<std::uint64_t>(inside * kKeyScale) << kRankBits |
                static_cast<std::uint64_t>(r);
    }
    const std::uint64_t* const ordered = sort_keys(keys, spare, ranks);
    const double n = static_cast<double>(ranks);
    double before = 0.0;
    for (Index k = 0; k < ranks; ++k) {
      const auto rank = static_cast<Index>(ordered[k] & kRankMask);
      const double value = row[rank];
      distance[rank] = value * (2.0 * static_cast<double>(k) - n) + total - 2.0 * before;
      before += value;
    }
    return true;
  }
};

void add_row(const double* distance, Index ranks, const double* weights, Index weightings, Index grid,
             Index g, double* scores) {
  for (Index w = 0; w < weightings; ++w) {
    const double share = weights[w * grid + g] / (static_cast<double>(ranks) - 1.0);
    double* const score = scores + w * ranks;
    for (Index r = 0; r < ranks; ++r) score[r] += share * distance[r];
  }
}

/// The standard normal distribution function on [-8, 8], beyond which it is 0 or 1 to 1e-15.
/// Linear between 16384 cells: off by at most step^2 / 8 * max |phi'| = 2.9e-8.
class NormalTable {
 public:
  NormalTable() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = 0.5 * std::erfc(-(static_cast<double>(i) / kPerUnit - kReach) / std::sqrt(2.0));
    }
  }

  double operator()(double z) const {
    const double at = (std::min(std::max(z, -kReach), kReach) + kReach) * kPerUnit;
    const auto cell = std::min(static_cast<std::size_t>(at), kCells - 1);
    const double inside = at - static_cast<double>(cell);
    return values_[cell] + inside * (values_[cell + 1] - values_[cell]);
  }

 private:
  static constexpr double kReach = 8.0;
  static constexpr double kPerUnit = 1024.0;
  static constexpr std::size_t kCells = 16384;
  std::array<double, kCells + 1> values_{};
};

}  // namespace

std::int64_t argus_w1_mixtures_workspace_bytes(std::int64_t ranks, std::int64_t modes) noexcept {
  return Ranking::bytes(ranks) + ranks * (modes + 1) * static_cast<Index>(sizeof(double));
}

std::int64_t argus_w1_mean_of_mixtures(const double* weight, const double* mu, const double* sigma,
                                       std::int64_t modes, std::int64_t ranks, const double* points,
                                       std::int64_t grid, const double* weights,
                                       std::int64_t weightings, void* workspace,
                                       std::int64_t workspace_bytes, double* scores) noexcept {
  if (weight == nullptr || mu == nullptr || sigma == nullptr || points == nullptr ||
      weights == nullptr || workspace == nullptr || scores == nullptr || modes < 1 || grid < 0 ||
      weightings < 0 || ranks < 1 || ranks > static_cast<Index>(kRankMask)) {
    return kArgusBadArgument;
  }
  if (workspace_bytes < argus_w1_mixtures_workspace_bytes(ranks, modes)) return kArgusShortBuffer;
  static const NormalTable normal;
  Ranking ranking(workspace, ranks);
  double* const row = ranking.end(ranks);
  double* const narrow = row + ranks;  // 1 / sigma, modes x ranks
  for (Index i = 0; i < modes * ranks; ++i) narrow[i] = 1.0 / sigma[i];
  std::fill_n(scores, weightings * ranks, 0.0);
  if (ranks == 1) return 0;
  for (Index g = 0; g < grid; ++g) {
    const double x = points[g];
    std::fill_n(row, ranks, 0.0);
    for (Index m = 0; m < modes; ++m) {
      const Index at = m * ranks;
      for (Index r = 0; r < ranks; ++r) {
        row[r] += weight[at + r] * normal((x - mu[at + r]) * narrow[at + r]);
      }
    }
    if (ranking.rank(row, ranks)) {
      add_row(ranking.distance, ranks, weights, weightings, grid, g, scores);
    }
  }
  return 0;
}
