#pragma once

#include <cstdint>

#include "../nccl/launches.hpp"

namespace argus {

/// Counts a kernel of NCCL's that has ended where the exporter reads of its communicator (argus_core.nccl_page).
/// Worker only: no other thread writes page::Kernels. `operations`: the first `listed` of what it did.
void count_kernel(page::Communicator* communicators, const nccl::Launch& launch,
                  const nccl::LaunchedOperation* operations, std::uint32_t listed, std::uint64_t duration_ns) noexcept;

}  // namespace argus
