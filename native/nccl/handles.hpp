#pragma once

#include <cstdint>

namespace argus::nccl {

/// What a handle stands for.
enum class Kind : std::uint32_t {
  kPlain,      ///< an event of which nothing is kept; its index: communicator, and bit of its type
  kEvent,      ///< a slot of the ring of events; its index: bit of its type, and the slot
  kOperation,  ///< a slot of the operations of the progress threads
  kStep,       ///< one of the steps of such an operation
};

/// Handles and contexts that NCCL keeps for us are numbers, never addresses: of a process whose tag is not ours
/// (another one's, through PXN), of a slot that has another user by now, or of nonsense, each is seen and ignored.
/// 16 bits of tag, 3 of kind, 21 of generation, 24 of index.
class Handle {
 public:
  static constexpr std::uint32_t kGenerations = 1U << 21U;

  Handle(std::uint16_t tag, Kind kind, std::uint32_t generation, std::uint32_t index) noexcept
      : word_(std::uint64_t{tag} << 48U | std::uint64_t{static_cast<std::uint32_t>(kind)} << 45U |
              std::uint64_t{generation % kGenerations} << 24U | (index & 0xffffffU)) {}
  explicit Handle(const void* pointer) noexcept : word_(reinterpret_cast<std::uintptr_t>(pointer)) {}

  void* pointer() const noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(word_)); }
  std::uint16_t tag() const noexcept { return static_cast<std::uint16_t>(word_ >> 48U); }
  Kind kind() const noexcept { return static_cast<Kind>(word_ >> 45U & 7U); }
  std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(word_ >> 24U) % kGenerations; }
  std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(word_ & 0xffffffU); }

 private:
  std::uint64_t word_;
};
static_assert(sizeof(void*) == sizeof(std::uint64_t));

}  // namespace argus::nccl
