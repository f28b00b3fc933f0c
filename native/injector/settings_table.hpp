// Generated from exporter/argus_training/settings.py by `make generate`; do not edit.
#pragma once

#include "variables.hpp"

namespace argus::table {

/// switch all of ARGUS off in the training process
inline constexpr Switch kDisable{"ARGUS_DISABLE"};
/// switch the kernels channel off
inline constexpr Switch kDisableKernels{"ARGUS_DISABLE_KERNELS"};
/// socket of the exporter; default: a private folder of the user
inline constexpr Text kSocket{"ARGUS_SOCKET"};
/// name of the training job; default: from the scheduler or the script
inline constexpr Text kJob{"ARGUS_JOB"};
/// records wait at most this long
inline constexpr Number kFlushMilliseconds{"ARGUS_FLUSH_MILLISECONDS", 1000, 0};
/// say on stderr what was attached
inline constexpr Switch kDebug{"ARGUS_DEBUG"};
/// set by ARGUS itself: the process that reports for this rank
inline constexpr Number kProducerPid{"ARGUS_PRODUCER_PID", 0, 0};
/// kernels only of processes whose command line matches this POSIX extended regular expression
inline constexpr Text kCommandInclude{"ARGUS_COMMAND_INCLUDE"};
/// no kernels of processes whose command line matches this
inline constexpr Text kCommandExclude{"ARGUS_COMMAND_EXCLUDE"};
/// record kernel launches too, for start minus launch per kernel; sampled: in one second of ten, the same on all ranks; 1: always; 0: never
inline constexpr Choice kIssueLatency{"ARGUS_ISSUE_LATENCY", {"sampled", "1", "0"}};
/// libcupti to use; default: the one that is mapped, or by name
inline constexpr Text kCuptiLibrary{"ARGUS_CUPTI_LIBRARY"};
/// buffers that CUPTI fills; more CUDA threads need more
inline constexpr Number kCuptiBuffers{"ARGUS_CUPTI_BUFFERS", 32, 2};
/// size of such a buffer
inline constexpr Number kCuptiBufferKibibytes{"ARGUS_CUPTI_BUFFER_KIBIBYTES", 1024, 16};
/// record CUPTI's raw buffers into this path, with .rank<rank> behind it
inline constexpr Text kRecord{"ARGUS_RECORD"};
/// another injection library, which ours loads and initialises behind it
inline constexpr Text kNextInjection{"ARGUS_NEXT_INJECTION"};
/// per cent of the training's time that kernels may cost, by what a record was measured to cost; 0: whatever they cost
inline constexpr Number kKernelsCost{"ARGUS_KERNELS_COST", 1, 0};
/// such a recording ends at this size
inline constexpr Number kRecordMebibytes{"ARGUS_RECORD_MEBIBYTES", 64, 1};

}  // namespace argus::table
