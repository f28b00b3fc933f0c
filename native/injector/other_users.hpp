#pragma once

namespace argus {

/// Who else has CUPTI in this process for as long as it lives: a word for the channel; empty: nobody is seen.
///
/// CUPTI has one pair of buffer callbacks and, before CUDA 13.3, one subscriber a process, and tells nobody who loses
/// them. Profilers and debuggers that were started on purpose go first: we do not touch CUPTI beside them. A window
/// of torch.profiler is none of these: it ends, and is seen (argus_training/profiler_windows.py).
///
/// Known by the variables that NVIDIA's tools give to what they start, none of them documented (as CUDA.jl, GROMACS
/// and FlashMLA know them), or by their mapped libraries.
const char* other_user_of_cupti() noexcept;

}  // namespace argus
