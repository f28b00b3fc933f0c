#pragma once

#include <cstdint>
#include <string>

#include "abi.hpp"
#include "event.hpp"
#include "page.hpp"
#include "tables.hpp"

namespace argus::nccl {

/// The profiler plugin that was configured before us: NCCL has one place, users have two.
///
/// It sees what NCCL would have told it alone, in its own version of the interface, with its own contexts and
/// handles. Its calls run on NCCL's threads as they would without us; no lock of ours is held meanwhile. Where it
/// cannot be loaded, or its init fails, we go on without it.
class Former {
 public:
  /// Loads it, by NCCL's rules for NCCL_PROFILER_PLUGIN, and takes the newest of its tables up to `table`. First
  /// init only.
  page::Former load(const std::string& value, int table) noexcept;

  bool there() const noexcept { return version_ != 0 && !__atomic_load_n(&failed_, __ATOMIC_RELAXED); }
  int version() const noexcept { return version_; }

  /// Its init of a communicator, which is chained when it answers success. False: it failed, and is asked no more.
  bool open(Communicator& communicator, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
            Logger logger) noexcept;
  void close(Communicator& communicator) noexcept;

  /// Types that it asks for: it may change them at any time.
  std::uint32_t mask() const noexcept;
  /// Whether NCCL would send it an event of this type: also one whose children it asks for.
  bool wants(std::uint64_t type) const noexcept;

  /// Its handle for an event; null where it gives none. `descriptor` is the host's, of version `table`; what points
  /// to our handles in it is theirs while the call lasts. `parent`, `parent_group`: their handles.
  void* start(Communicator& communicator, Event event, void* descriptor, int table, void* parent,
              void* parent_group) noexcept;
  void stop(void* handle) noexcept;
  void record(void* handle, int state, void* arguments, int table) noexcept;

 private:
  bool open_table(void* library, int table) noexcept;
  template <class Descriptor>
  void* start_as(Communicator& communicator, const Event& event) noexcept;

  int version_ = 0;
  bool failed_ = false;
  int mask_ = 0;  ///< lives for ever: plugins keep the pointer
  const void* table_ = nullptr;
  Result (*start_)(void*, void**, void*) = nullptr;
  Result (*stop_)(void*) = nullptr;
  Result (*record_)(void*, int, void*) = nullptr;
  Result (*finalize_)(void*) = nullptr;
};

}  // namespace argus::nccl
