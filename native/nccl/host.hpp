#pragma once

#include <cstdint>

#include "page.hpp"

namespace argus::nccl {

/// The NCCL that called us.
struct Host {
  int version = 0;    ///< as ncclGetVersion answers, 23007 for 2.30.7; 0: it cannot be asked
  bool rccl = false;  ///< AMD's, whose v6 and v7 mean other things by some bits
};

/// From an address within it: its logger, or who called init. First init only: it asks the dynamic linker.
Host host_of(const void* address) noexcept;

/// What we ask of it, and why it is not everything.
struct Choice {
  std::uint32_t mask = 0;
  page::Reason reason = page::Reason::kNone;
};

/// `table`: the version of the interface by which it calls us. `network`: steps of the network are wanted.
///
/// Refused, by name: RCCL, whole (all-to-all ends in a crash with any plugin in ROCm 7.1.0); the network of 2.23,
/// which hands the wrong context to proxies of aggregated operations (NVIDIA/nccl#1586). Kernel channels (0x40) are
/// never asked for: they abort or slow down jobs in each version up to 2.31 (docs/nccl.md).
Choice choose(const Host& host, int table, bool network) noexcept;

/// Bits that a version of the interface knows.
std::uint32_t known_types(int table) noexcept;

}  // namespace argus::nccl
