#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// The part of CUPTI's v1 Activity API that we use, so that neither CUDA nor CUPTI is needed to build.
///
/// The offsets were compiled from NVIDIA's headers of CUPTI 12.1, 12.4, 12.8, 12.9, 13.0 to 13.5: records
/// only ever grow at their end (a kernel has 208, 216, 224, 232 or 248 bytes). So records are found by the
/// loaded library's own cuptiActivityGetNextRecord, never by a stride of ours, and read at these offsets.
namespace argus::abi {

using Result = int;
inline constexpr Result kSuccess = 0;

using RequestCallback = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using CompleteCallback = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                                  std::size_t valid);

inline constexpr std::uint32_t kKindMemcpy = 1;
inline constexpr std::uint32_t kKindMemset = 2;
inline constexpr std::uint32_t kKindKernel = 3;
inline constexpr std::uint32_t kKindDriver = 4;
inline constexpr std::uint32_t kKindRuntime = 5;
inline constexpr std::uint32_t kKindConcurrentKernel = 10;

inline constexpr std::uint32_t kFlushForced = 1;

/// From this API number (12.9) on, the request callback may answer without a buffer. Before, CUPTI may crash:
/// Kineto's kCuptiBufferRejectionMinVersion.
inline constexpr std::uint32_t kMayRefuseBuffer = 27;

struct Kernel {  // CUpti_ActivityKernel9 .. 13
  static constexpr std::size_t kStart = 16;
  static constexpr std::size_t kEnd = 24;
  static constexpr std::size_t kDevice = 40;
  static constexpr std::size_t kStream = 48;
  static constexpr std::size_t kCorrelation = 92;
  static constexpr std::size_t kName = 104;
  static constexpr std::size_t kGraph = 156;
  static constexpr std::size_t kSmallest = 208;
};

struct Memcpy {  // CUpti_ActivityMemcpy5 .. 7
  static constexpr std::size_t kCopyKind = 4;
  static constexpr std::size_t kSourceKind = 5;
  static constexpr std::size_t kDestinationKind = 6;
  static constexpr std::size_t kBytes = 8;
  static constexpr std::size_t kStart = 16;
  static constexpr std::size_t kEnd = 24;
  static constexpr std::size_t kDevice = 32;
  static constexpr std::size_t kStream = 40;
};

struct Memset {  // CUpti_ActivityMemset4 .. 5
  static constexpr std::size_t kValue = 4;
  static constexpr std::size_t kBytes = 8;
  static constexpr std::size_t kStart = 16;
  static constexpr std::size_t kEnd = 24;
  static constexpr std::size_t kDevice = 32;
  static constexpr std::size_t kStream = 40;
  static constexpr std::size_t kMemoryKind = 50;
};

struct Api {  // CUpti_ActivityAPI
  static constexpr std::size_t kCall = 4;
  static constexpr std::size_t kStart = 8;
  static constexpr std::size_t kEnd = 16;
  static constexpr std::size_t kThread = 28;
  static constexpr std::size_t kCorrelation = 32;
};

/// Calls that launch kernels. Source: cupti_runtime_cbid.h and cupti_driver_cbid.h of 12.9 and 13.0; the
/// numbers are never reused. Compiled and Triton code launches through the driver.
inline constexpr std::uint32_t kRuntimeLaunches[] = {
    211, 214,  // cudaLaunchKernel, _ptsz
    269, 270,  // cudaLaunchCooperativeKernel
    311, 312,  // cudaGraphLaunch
    430, 431,  // cudaLaunchKernelExC
    505, 506,  // __cudaLaunchKernel (13.0)
};
inline constexpr std::uint32_t kDriverLaunches[] = {
    307, 442,  // cuLaunchKernel, _ptsz
    477, 478,  // cuLaunchCooperativeKernel
    514, 515,  // cuGraphLaunch
    652, 653,  // cuLaunchKernelEx
};
/// Of these, what NCCL calls: cuLaunchKernelEx, _ptsz.
inline constexpr std::uint32_t kNcclLaunches[] = {652, 653};
/// Beyond the largest callback id of either domain (807 in CUPTI 13.0).
inline constexpr std::uint32_t kCallbackIds = 1024;

template <class T>
T read(const void* record, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, static_cast<const char*>(record) + offset, sizeof value);
  return value;
}

}  // namespace argus::abi
