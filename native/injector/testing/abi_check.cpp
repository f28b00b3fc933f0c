// Compile-time comparison of our offsets with NVIDIA's headers: tests/native/test_cupti_abi.py compiles it with those
// of each major version, which `python -m tools.cupti_headers` fetches. KERNEL, MEMCPY and MEMSET name the newest
// structs of that version (CUpti_ActivityKernel13, ...).

#include <cupti.h>

#include <cstddef>

#include "../cupti_abi.hpp"

namespace abi = argus::abi;

#define SAME(structure, field, ours) static_assert(offsetof(structure, field) == (ours), #structure "." #field)

SAME(KERNEL, start, abi::Kernel::kStart);
SAME(KERNEL, end, abi::Kernel::kEnd);
SAME(KERNEL, deviceId, abi::Kernel::kDevice);
SAME(KERNEL, streamId, abi::Kernel::kStream);
SAME(KERNEL, correlationId, abi::Kernel::kCorrelation);
SAME(KERNEL, name, abi::Kernel::kName);
SAME(KERNEL, graphId, abi::Kernel::kGraph);
static_assert(sizeof(KERNEL) >= abi::Kernel::kSmallest);

SAME(MEMCPY, copyKind, abi::Memcpy::kCopyKind);
SAME(MEMCPY, srcKind, abi::Memcpy::kSourceKind);
SAME(MEMCPY, dstKind, abi::Memcpy::kDestinationKind);
SAME(MEMCPY, bytes, abi::Memcpy::kBytes);
SAME(MEMCPY, start, abi::Memcpy::kStart);
SAME(MEMCPY, end, abi::Memcpy::kEnd);
SAME(MEMCPY, deviceId, abi::Memcpy::kDevice);
SAME(MEMCPY, streamId, abi::Memcpy::kStream);

SAME(MEMSET, value, abi::Memset::kValue);
SAME(MEMSET, bytes, abi::Memset::kBytes);
SAME(MEMSET, start, abi::Memset::kStart);
SAME(MEMSET, end, abi::Memset::kEnd);
SAME(MEMSET, deviceId, abi::Memset::kDevice);
SAME(MEMSET, streamId, abi::Memset::kStream);
SAME(MEMSET, memoryKind, abi::Memset::kMemoryKind);

SAME(CUpti_ActivityAPI, cbid, abi::Api::kCall);
SAME(CUpti_ActivityAPI, start, abi::Api::kStart);
SAME(CUpti_ActivityAPI, end, abi::Api::kEnd);
SAME(CUpti_ActivityAPI, threadId, abi::Api::kThread);
SAME(CUpti_ActivityAPI, correlationId, abi::Api::kCorrelation);

static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == abi::kKindMemcpy);
static_assert(CUPTI_ACTIVITY_KIND_MEMSET == abi::kKindMemset);
static_assert(CUPTI_ACTIVITY_KIND_KERNEL == abi::kKindKernel);
static_assert(CUPTI_ACTIVITY_KIND_DRIVER == abi::kKindDriver);
static_assert(CUPTI_ACTIVITY_KIND_RUNTIME == abi::kKindRuntime);
static_assert(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == abi::kKindConcurrentKernel);
static_assert(CUPTI_SUCCESS == abi::kSuccess);
static_assert(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == abi::kFlushForced);
static_assert(CUPTI_DRIVER_TRACE_CBID_SIZE < abi::kCallbackIds && CUPTI_RUNTIME_TRACE_CBID_SIZE < abi::kCallbackIds);
static_assert(abi::kRuntimeLaunches[0] == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
static_assert(abi::kRuntimeLaunches[4] == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
static_assert(abi::kRuntimeLaunches[6] == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060);
static_assert(abi::kDriverLaunches[0] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
static_assert(abi::kDriverLaunches[4] == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
static_assert(abi::kDriverLaunches[6] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
static_assert(abi::kNcclLaunches[0] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
static_assert(abi::kNcclLaunches[1] == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz);

int main() { return 0; }
