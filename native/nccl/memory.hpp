#pragma once

#include <string>

#include "page.hpp"

namespace argus::nccl {

/// The memory in which we count (argus_core/nccl_page.py): the producer of this process made it and hands it to the
/// exporter. Mapped once, never unmapped: NCCL may call until the very end.
struct Memory {
  page::Header* header = nullptr;
  page::Communicator* communicators = nullptr;

  /// Of ARGUS_NCCL_PAGE, PID:DESCRIPTOR. Nothing is mapped where that is another process's, or is no sealed memory
  /// of the right size: a memory that shrinks under us would kill the training. First init only.
  static Memory map(const std::string& variable) noexcept;
};

}  // namespace argus::nccl
