#pragma once

#include <string>
#include <vector>

#include "environment.hpp"
#include "wire.hpp"

namespace argus {

/// One rank of one job. -1: unknown. Twin of argus_training/identity.py: both must name the same
/// rank alike, because the exporter joins the connections of a rank by job and rank.
struct Identity {
  int rank = -1;
  int local_rank = -1;
  int world_size = -1;
  std::string job;
};

/// From the variables of torchrun, Open MPI or Slurm; rank -1 where none of them holds a rank.
Identity identify(const Settings& settings, const std::vector<std::string>& command);

/// Words of /proc/self/cmdline; empty where it cannot be read.
std::vector<std::string> command_line();

/// What a command has Python run: two of them are empty, or all. Twin: _run_by in argus_training/boot/_argus_boot.py.
struct Run {
  std::string script;
  std::string module;
  std::string code;
};
Run run_of(const std::vector<std::string>& command);

/// What Python's sys.argv[0] makes of the job's name: `train` for `python -u train.py` and for
/// `python -m pkg.train`; empty for `-c`.
std::string script_name(const std::vector<std::string>& command);

/// Where the exporter listens: ARGUS_SOCKET, or a private folder of the user (argus_core.link).
std::string socket_path(const Settings& settings);

/// HELLO of this process now, for the kernels channel. Parallel coordinates are not ours to know.
wire::Hello hello(const Identity& identity);

}  // namespace argus
