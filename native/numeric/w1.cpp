#include "w1.hpp"

#include <algorithm>
#include <utility>

namespace {

using Index = std::int64_t;

// A key packs 33 bits of F above 31 bits of rank; three passes of 11 bits sort it by F.
constexpr int kRankBits = 31;
constexpr int kDigitBits = 11;
constexpr int kPasses = 3;
constexpr std::size_t kDigits = 1U << kDigitBits;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
constexpr double kKeyScale = 8589934591.0;  // 2^33 - 1

constexpr std::size_t digit(std::uint64_t key, int pass) {
  return static_cast<std::size_t>(key >> (kRankBits + pass * kDigitBits)) & (kDigits - 1);
}

/// Orders `keys` by F, with `spare` as the second buffer; returns the one that holds the result.
std::uint64_t* radix_sort(std::uint64_t* keys, std::uint64_t* spare, Index count) {
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

}  // namespace

std::int64_t argus_w1_workspace_bytes(std::int64_t ranks) noexcept {
  return ranks * static_cast<Index>(2 * sizeof(std::uint64_t) + sizeof(double));
}

std::int64_t argus_w1_mean_by_ranking(const double* cdf, std::int64_t grid, std::int64_t ranks,
                                      const double* weights, std::int64_t weightings,
                                      void* workspace, std::int64_t workspace_bytes,
                                      double* scores) noexcept {
  if (cdf == nullptr || weights == nullptr || workspace == nullptr || scores == nullptr ||
      grid < 0 || weightings < 0 || ranks < 1 || ranks > static_cast<Index>(kRankMask)) {
    return kArgusBadArgument;
  }
  if (workspace_bytes < argus_w1_workspace_bytes(ranks)) return kArgusShortBuffer;
  auto* const keys = static_cast<std::uint64_t*>(workspace);
  auto* const spare = keys + ranks;
  auto* const distance = reinterpret_cast<double*>(spare + ranks);
  std::fill_n(scores, weightings * ranks, 0.0);
  if (ranks == 1) return 0;
  const double n = static_cast<double>(ranks);

  for (Index g = 0; g < grid; ++g) {
    const double* const row = cdf + g * ranks;
    double total = 0.0;
    double low = row[0];
    double high = row[0];
    for (Index r = 0; r < ranks; ++r) {
      total += row[r];
      low = std::min(low, row[r]);
      high = std::max(high, row[r]);
    }
    if (low == high) continue;
    for (Index r = 0; r < ranks; ++r) {
      const double inside = std::min(std::max(row[r], 0.0), 1.0);
      keys[r] = static_cast<std::uint64_t>(inside * kKeyScale) << kRankBits |
                static_cast<std::uint64_t>(r);
    }
    const std::uint64_t* const ordered = radix_sort(keys, spare, ranks);
    double before = 0.0;
    for (Index k = 0; k < ranks; ++k) {
      const auto rank = static_cast<Index>(ordered[k] & kRankMask);
      const double value = row[rank];
      distance[rank] = value * (2.0 * static_cast<double>(k) - n) + total - 2.0 * before;
      before += value;
    }
    for (Index w = 0; w < weightings; ++w) {
      const double share = weights[w * grid + g] / (n - 1.0);
      double* const score = scores + w * ranks;
      for (Index r = 0; r < ranks; ++r) score[r] += share * distance[r];
    }
  }
  return 0;
}
