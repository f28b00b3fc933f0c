#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.hpp"

namespace argus::nccl {

/// An event's descriptor in the words of all versions. Pointers live for the call only.
struct Event {
  std::uint64_t type = 0;
  void* parent = nullptr;
  void* parent_group = nullptr;  ///< v5 and later: of Coll and P2p, whose `parent` is then the call of the API
  int rank = 0;
  std::uint32_t function = 0;  ///< index in page::kFunctionNames
  const char* name = nullptr;  ///< of the communicator, versions 1 to 3
  std::uint64_t hash = 0;
  std::uint64_t sequence = 0;
  const char* function_name = nullptr;
  const void* send_buffer = nullptr;
  void* receive_buffer = nullptr;
  std::size_t count = 0;
  int root = 0;
  const char* datatype = nullptr;
  std::uint8_t channels = 0;
  std::uint8_t warps = 0;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int peer = 0;
  ProxyOp operation{};
  int step = 0;
  std::uint8_t channel = 0;
  std::uint64_t timer = 0;
  NetPlugin network{};

  std::uint64_t bytes() const noexcept;
};

/// Of versions 1 to 7. What a type does not have stays empty.
void decode(const DescriptorV1& descriptor, Event& event) noexcept;
void decode(const DescriptorV2& descriptor, Event& event) noexcept;
void decode(const DescriptorV3& descriptor, Event& event) noexcept;
void decode(const DescriptorV4& descriptor, Event& event) noexcept;
void decode(const DescriptorV5& descriptor, Event& event) noexcept;

/// For a plugin of version 1 to 4, as NCCL's own shims make it, and with the communicator's name and hash.
void encode(const Event& event, DescriptorV1& descriptor) noexcept;
void encode(const Event& event, DescriptorV2& descriptor) noexcept;
void encode(const Event& event, DescriptorV3& descriptor) noexcept;
void encode(const Event& event, DescriptorV4& descriptor) noexcept;

}  // namespace argus::nccl
