#pragma once

#include <cstdint>

#define ARGUS_EXPORT extern "C" __attribute__((visibility("default")))

/// Negative answers of every entry point; 0 and up are success.
enum ArgusNumericError : std::int64_t {
  kArgusBadArgument = -1,  ///< null pointer, size out of range
  kArgusShortBuffer = -2,  ///< capacity or workspace too small
  kArgusOtherForm = -3,    ///< a text that is not of the form that is read here
};

/// Version of this interface. argus_core/native.py refuses any other: an editable install may keep
/// an older library beside newer Python. Any thread, O(1).
ARGUS_EXPORT std::int64_t argus_numeric_abi(void) noexcept;
