#pragma once

#include <cstdint>

#include "event.hpp"
#include "handles.hpp"
#include "launches.hpp"
#include "memory.hpp"
#include "tables.hpp"

namespace argus::nccl {

/// Counts what NCCL tells, in the memory that the exporter reads.
///
/// Called on NCCL's threads: the caller's own and one progress thread a communicator. Nothing here allocates, locks,
/// makes a system call or throws; what does not fit is dropped and counted. Never destroyed.
class Observer {
 public:
  /// Once, before anything else. `tag`: not 0.
  void begin(const Memory& memory, std::uint16_t tag) noexcept;

  /// A new communicator's context; null: there is no slot for it.
  Communicator* open(const char* name, std::uint64_t hash, int nodes, int ranks, int rank) noexcept;
  void close(Communicator& communicator) noexcept;
  void* context_of(const Communicator& communicator) const noexcept;
  /// Of a live communicator of this process; null otherwise.
  Communicator* communicator(const void* context) noexcept;

  /// An event, but a step, begins. `keep`: a handle of a slot, for the former plugin, whatever the type. Answers the
  /// handle; null where nothing is to be heard of it again.
  void* start(Communicator& communicator, const Event& event, bool keep) noexcept;
  /// A step begins; NCCL says so again and again until the receive is accepted.
  void* start_step(const void* parent, int number) noexcept;
  void stop(const void* handle) noexcept;
  /// `bytes`: of the transfer, where the state has them.
  void record(const void* handle, int state, std::uint64_t bytes) noexcept;

  /// Slots behind handles that are still what they were; null otherwise.
  Slot* slot(const void* handle) noexcept;
  Operation* operation(const void* handle) noexcept;
  /// Where the former plugin's handle of a step lies; null: it is no step of ours.
  void** step_theirs(const void* handle) noexcept;

  page::Header& header() noexcept { return *memory_.header; }
  LaunchRing& launches() noexcept { return launches_.ring(); }
  bool ours(const void* pointer) const noexcept { return Handle(pointer).tag() == tag_; }

 private:
  /// One that is nobody's now: never used, else the one that was finalized the longest ago. Null: all are live.
  Communicator* claim() noexcept;
  void* start_operation(Communicator& communicator, const Event& event, std::uint64_t now) noexcept;
  void enter(Communicator& communicator, const Event& event, std::uint64_t now) noexcept;
  void stop_operation(Operation& operation, std::uint64_t now) noexcept;
  void finish_one(const void* collective, std::uint64_t now) noexcept;
  void leave(Operation& operation, Operation::Step& step, std::uint64_t now, bool counts) noexcept;
  void show_oldest(Operation& operation, std::uint32_t at, std::uint64_t now) noexcept;
  void show(Operation& operation, std::uint32_t oldest, std::uint64_t now) noexcept;
  void record_operation(Operation& operation, int state, std::uint64_t now) noexcept;
  void launched(std::uint32_t index) noexcept;
  page::Peer& peer(page::Communicator& page, int rank) noexcept;
  /// Where its steps count; null: its communicator's place, and that memory, is another's by now.
  page::Peer* peer_of(const Operation& operation) const noexcept;
  std::uint32_t index_of(const Communicator& communicator) const noexcept;

  Memory memory_;
  std::uint16_t tag_ = 0;
  std::int32_t pid_ = 0;
  std::uint64_t ended_ = 0;
  Communicator communicators_[page::kCommunicators] = {};
  Ring ring_;
  Operations operations_;
  Launches launches_;
};

}  // namespace argus::nccl
