#include "nccl_kernels.hpp"

#include <algorithm>

#include "../nccl/page.hpp"
#include "../nccl/sizes.hpp"
#include "../nccl/words.hpp"

namespace argus {
namespace {

using page::Function;

constexpr std::uint32_t bit_of(Function function) noexcept { return 1U << static_cast<std::uint32_t>(function); }

/// What a kernel counts as, by the functions that it does.
Function function_of(std::uint32_t functions) noexcept {
  if (functions == (bit_of(Function::kSend) | bit_of(Function::kRecv))) return Function::kSend;
  const bool alone = functions && (functions & (functions - 1)) == 0;
  return alone ? static_cast<Function>(__builtin_ctz(functions)) : Function::kOther;
}

/// What each member has to pass on, however the work is done: the "bus bandwidth" of NVIDIA/nccl-tests. `bytes`: what
/// it gives, or adds, as page::Operation has them.
std::uint64_t bus_bytes(Function function, std::uint64_t bytes, std::uint64_t ranks) noexcept {
  switch (function) {
    case Function::kAllReduce:
      return ranks ? 2 * bytes / ranks * (ranks - 1) : 0;
    case Function::kAllGather:
    case Function::kReduceScatter:
      return ranks ? bytes * (ranks - 1) : 0;
    case Function::kBroadcast:
    case Function::kReduce:
    case Function::kSend:
      return bytes;
    case Function::kRecv:
    case Function::kOther:
      break;
  }
  return 0;
}

/// Of a sequence number the lower half is known; the whole is near the last that was entered, and not above it.
std::uint64_t whole(std::uint32_t low, std::uint64_t entered) noexcept {
  const auto behind = static_cast<std::uint32_t>(static_cast<std::uint32_t>(entered) - low);
  return behind < entered ? entered - behind : 0;
}

}  // namespace

void count_kernel(page::Communicator* communicators, const nccl::Launch& launch,
                  const nccl::LaunchedOperation* operations, std::uint32_t listed,
                  std::uint64_t duration_ns) noexcept {
  using nccl::add_alone;
  using nccl::load;
  using nccl::store;
  if (!communicators || launch.slot >= page::kCommunicators) return;
  page::Communicator& shown = communicators[launch.slot];
  if (load(shown.identity.generation) != launch.generation) return;  // the slot was given away meanwhile
  page::Kernels& kernels = shown.kernels;
  const Function function = function_of(launch.functions);
  const auto index = static_cast<std::size_t>(function);
  add_alone(kernels.count[index], std::uint64_t{1});
  add_alone(kernels.ns[index], duration_ns);
  const auto ranks = static_cast<std::uint64_t>(std::max(load(shown.identity.ranks), 0));
  if (const std::uint64_t moved = bus_bytes(function, launch.bytes, ranks)) {
    const std::size_t size = nccl::size_class(launch.bytes);
    add_alone(kernels.bus_ns[size], duration_ns);
    add_alone(kernels.bus_bytes[size], moved);
  }
  for (std::uint32_t at = 0; at < listed; ++at) {
    const nccl::LaunchedOperation& one = operations[at];
    if (!one.is_collective() || one.function >= page::kFunctions) continue;  // the others have no number
    const std::uint64_t ended = whole(one.sequence + 1, load(shown.operations[one.function].sequence));
    store(kernels.finished[one.function], std::max(load(kernels.finished[one.function]), ended));
  }
}

}  // namespace argus
