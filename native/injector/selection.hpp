#pragma once

#include <string>
#include <vector>

#include "environment.hpp"
#include "identity.hpp"

namespace argus {

/// Why this process is never observed; empty: it is, or it may be. CUDA_INJECTION64_PATH and RANK are inherited by
/// everything that a job starts: only a rank itself may be observed, and only once.
std::string reason_to_skip(const Settings& settings, const std::vector<std::string>& command);

/// Why the environment does not say which rank this process is; empty: `identity` is it. Such a process is observed
/// once the Python side has seen that it trains and says who it is: a plain script, one that Lightning or mp.spawn
/// started. As argus_training/rank_layout.py.
std::string reason_to_wait(const Identity& identity, const std::vector<std::string>& command);

/// Claims a rank of a job for this process: one process at a time of a user, host and exporter holds it.
/// A program that a rank starts inherits its rank, and must not report for it.
class RankClaim {
 public:
  /// True when it is ours now. A socket of the abstract namespace holds the claim, so that the kernel frees
  /// it however the process ends. True as well where no socket can be made: then nothing can be told.
  bool take(const Identity& identity, const std::string& exporter_socket) noexcept;
  /// Child of a fork: lets go of the inherited copy, which would hold the claim beyond its owner's end.
  void abandon() noexcept;

 private:
  int socket_ = -1;
};

}  // namespace argus
