// Generated from exporter/argus_training/settings.py by `make generate`; do not edit.
#pragma once

#include "variables.hpp"

namespace argus::table {

/// switch all of ARGUS off in the training process
inline constexpr Switch kDisable{"ARGUS_DISABLE"};
/// say on stderr what was attached
inline constexpr Switch kDebug{"ARGUS_DEBUG"};
/// have NCCL load libargus_nccl.so: collectives by communicator; off until it has met several GPUs
inline constexpr Switch kNccl{"ARGUS_NCCL"};
/// what libargus_nccl asks NCCL for; network: calls, launches, network steps; calls: no network steps
inline constexpr Choice kNcclEvents{"ARGUS_NCCL_EVENTS", {"network", "calls"}};
/// another profiler plugin of NCCL, which ours loads and passes events on to
inline constexpr Text kNextProfiler{"ARGUS_NEXT_PROFILER"};
/// set by ARGUS itself: memory in which libargus_nccl counts
inline constexpr Text kNcclPage{"ARGUS_NCCL_PAGE"};

}  // namespace argus::table
