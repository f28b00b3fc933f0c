#pragma once

#include <cstdint>

/// Allocations and locks of the threads that count, whoever makes them.
namespace counted {
extern thread_local bool counting;
extern std::uint64_t allocations;
extern std::uint64_t locks;
}  // namespace counted
