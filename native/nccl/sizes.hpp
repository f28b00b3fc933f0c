#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "page.hpp"

namespace argus::nccl {

/// Class of size that so many bytes are of: index in page::Kernels and page::Operation.
inline std::size_t size_class(std::uint64_t bytes) noexcept {
  const auto* limit = std::lower_bound(std::begin(page::kSizeLimits), std::end(page::kSizeLimits), bytes);
  return static_cast<std::size_t>(limit - std::begin(page::kSizeLimits));
}

}  // namespace argus::nccl
