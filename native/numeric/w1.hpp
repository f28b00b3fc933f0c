#pragma once

#include "export.hpp"

/// Mean Wasserstein-1 distance of each rank to all others, without the matrix of pairs.
///
/// W1 is the area between two CDFs. At one grid point, with the ranks' F ascending,
/// sum_j |F_i - F_j| = F_i (2 k_i - R) + T - 2 P_(k_i), where T is the row's sum and P its prefix
/// sums; so one ranking of a row serves all pairs (docs/evidence/wasserstein.md). Each row of F, of log-normal
/// mixtures, is evaluated and ranked at once: its matrix (512 MB at a million ranks) never exists.
///
/// `weight`, `mu`, `sigma`: modes x ranks, row-major, mode by mode; weight 0 where a rank lacks a mode; mu and
/// sigma > 0 in log units. `points`: `grid` abscissae in log units.
/// `weights`: weightings x grid, quadrature weights of the grid points (seconds for W1, log units for
/// log-W1): several weightings share one ranking.
/// `scores`: weightings x ranks, overwritten; in the unit of the weights. `ranks` >= 1; one rank: 0.
///
/// F is read off a table of the normal distribution: within 3e-8. Ranked by 33 bits of F: F closer than 1.2e-10
/// may be swapped, which moves a score by no more.
/// Returns 0 or an ArgusNumericError. Keeps no state but that table, allocates nothing, throws nothing;
/// any number of threads, each with its own workspace (aligned to 8 bytes).
/// Cost: O(grid * ranks * modes), a radix sort of three passes a row (std::sort in small roles); about 15 ms for
/// 256 x 10,000 x 2.
ARGUS_EXPORT std::int64_t argus_w1_mean_of_mixtures(
    const double* weight, const double* mu, const double* sigma, std::int64_t modes,
    std::int64_t ranks, const double* points, std::int64_t grid, const double* weights,
    std::int64_t weightings, void* workspace, std::int64_t workspace_bytes, double* scores) noexcept;

/// Bytes of workspace that argus_w1_mean_of_mixtures needs. Any thread, O(1).
ARGUS_EXPORT std::int64_t argus_w1_mixtures_workspace_bytes(std::int64_t ranks,
                                                            std::int64_t modes) noexcept;
