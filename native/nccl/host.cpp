#include "host.hpp"

#include <dlfcn.h>

#include <cstring>

#include "abi.hpp"

namespace argus::nccl {
namespace {

constexpr std::uint32_t kCalls = kColl | kP2p | kKernelLaunch;
constexpr std::uint32_t kNetwork = kProxyStep;

int version_of(void* library) noexcept {
  auto* get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  return get && get(&version) == kSuccess && version > 0 ? version : 0;
}

}  // namespace

Host host_of(const void* address) noexcept {
  Host host;
  Dl_info where{};
  if (address && dladdr(address, &where) && where.dli_fname) {
    const char* slash = std::strrchr(where.dli_fname, '/');
    host.rccl = std::strncmp(slash ? slash + 1 : where.dli_fname, "librccl", 7) == 0;
    if (void* library = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD)) host.version = version_of(library);
  }
  if (!host.version) host.version = version_of(RTLD_DEFAULT);  // linked into the program, or into torch
  return host;
}

std::uint32_t known_types(int table) noexcept {
  if (table <= 2) return 0x3f;
  if (table <= 4) return 0xff;
  if (table == 5) return 0xfff;
  return table == 6 ? 0x7fff : 0xffff;
}

Choice choose(const Host& host, int table, bool network) noexcept {
  if (host.rccl) return {0, page::Reason::kRccl};
  Choice choice{(kCalls | (network ? kNetwork : 0)) & known_types(table), page::Reason::kNone};
  // 2.23 alone uses version 1 of the interface, so it is known where its number is not.
  const bool nccl_2_23 = host.version ? host.version / 100 == 223 : table == 1;
  if (nccl_2_23 && network) choice = {choice.mask & ~kNetwork, page::Reason::kNccl223Network};
  return choice;
}

}  // namespace argus::nccl
