// Reader of what the injector records with ARGUS_RECORD (recorder.hpp describes the layout).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace recording {

struct Buffer {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint32_t> offsets;  ///< of each record
};

struct Recording {
  std::uint32_t cupti_version = 0;
  std::vector<Buffer> buffers;
  /// Sizes of records by kind, as far as two records in a row tell them.
  std::map<std::uint32_t, std::size_t> sizes;
  std::deque<std::string> names;  ///< what the buffers' name pointers lead to; a deque never moves them
};

/// Reads a whole recording and makes it this process's: names are pointers to `names`, times are moved so that
/// its first record starts at `start`.
///
/// Throws std::runtime_error that says where the file is wrong.
Recording read(const std::string& path, std::uint64_t start);

}  // namespace recording
