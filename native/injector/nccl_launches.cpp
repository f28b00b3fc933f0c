#include "nccl_launches.hpp"

#include "../nccl/page.hpp"
#include "nccl_kernels.hpp"
#include "wire.hpp"

namespace argus {
namespace {

static_assert(nccl::LaunchRing::kTold == wire::kListed);
static_assert(page::kCommunicators <= 1U << (31 - wire::kLaunchedSlot));

std::uint32_t word_of(const nccl::Launch& launch) noexcept {
  const auto first = nccl::LaunchedOperation::of(launch.first);
  const bool one = launch.told && launch.operations == 1 && first.is_collective();
  const std::uint32_t low = one ? first.sequence : launch.told ? launch.operations : 0;
  return wire::kLaunchedByNccl | launch.slot << wire::kLaunchedSlot |
         (launch.generation & 0x1FFU) << wire::kLaunchedGeneration | (one ? wire::kLaunchedOne : 0) |
         (low & (wire::kLaunchedOne - 1));
}

}  // namespace

void NcclLaunches::called(std::uint32_t correlation, std::uint32_t thread, std::uint64_t begin_ns,
                          std::uint64_t end_ns) noexcept {
  const std::uint32_t newest = last_before(begin_ns) + kAhead;
  Known found;
  for (std::uint32_t back = 0; back < nccl::LaunchRing::kSlots && newest - back != 0; ++back) {
    nccl::Launch launch;
    if (!ring_.read(newest - back, launch)) continue;  // not begun, or being written
    if (launch.begin_ns + kHeldUpNs < begin_ns) break;
    if ((launch.thread != thread && launch.system_thread != thread) || launch.begin_ns > end_ns) continue;
    if (launch.end_ns && launch.end_ns < begin_ns) break;  // those of the thread before it ended sooner
    if (found.word) return;
    found = {correlation, word_of(launch), launch.number};
  }
  if (found.word) known_[correlation % kPlaces] = found;
}

std::uint32_t NcclLaunches::of(std::uint32_t correlation) noexcept {
  Known& known = known_[correlation % kPlaces];
  if (known.correlation != correlation) return 0;
  nccl::Launch launch;
  if (known.word && !is_told(known.word) && ring_.read(known.launch, launch)) known.word = word_of(launch);
  return known.word;
}

bool NcclLaunches::goes_on(std::uint32_t correlation) const noexcept {
  const Known& known = known_[correlation % kPlaces];
  nccl::Launch launch;
  return known.correlation == correlation && known.word && ring_.read(known.launch, launch) && launch.end_ns == 0;
}

std::uint32_t NcclLaunches::ended(std::uint32_t correlation, std::uint64_t duration_ns, Operations& out) noexcept {
  const Known& known = known_[correlation % kPlaces];
  if (known.correlation != correlation || !known.word) return 0;
  nccl::Launch launch;
  const bool told = ring_.read(known.launch, launch) && launch.told;
  const std::uint32_t listed = told ? ring_.operations(launch, out) : 0;
  if (told) count_kernel(ring_.shown(), launch, out, listed, duration_ns);
  // The word is sent as it is, and may be of before NCCL had told.
  if (known.word & wire::kLaunchedOne || !is_told(known.word)) return 0;
  if (listed == 0) ++unlisted_;
  return listed;
}

std::uint32_t NcclLaunches::last_before(std::uint64_t ns) const noexcept {
  const std::uint32_t last = ring_.last();
  std::uint32_t back = 0;  // so many from the last: begins later
  for (std::uint32_t step = nccl::LaunchRing::kSlots / 2; step > 0; step /= 2) {
    nccl::Launch launch;
    const std::uint32_t number = last - (back + step - 1);
    if (number <= last && ring_.read(number, launch) && launch.begin_ns > ns) back += step;
  }
  return last - back;
}

}  // namespace argus
