#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "clock.hpp"
#include "cupti.hpp"

namespace argus {

/// Writes CUPTI's raw buffers to a file, so that a run on a GPU can be replayed in tests without one
/// (tests/recorded/h100 has one of an H100).
///
/// Layout, little-endian: "ARGUSREC", u32 format (1), u32 CUPTI API number, u64 Unix ns and u64 CUPTI ticks
/// read together; then blocks of u32 type, u32 bytes and payload:
///   1 names:  (u64 pointer, u32 length, text) of kernels not named before;
///   2 buffer: u32 count, count x u32 offset of each record, then the valid bytes as CUPTI wrote them.
/// The offsets spare the reader the sizes of records, which differ from version to version. Worker only;
/// a full disk or the size limit ends the recording, never more.
class Recorder {
 public:
  /// Opens `path`.rank`rank`; without success nothing is recorded, which is said once.
  Recorder(const std::string& path, int rank, std::size_t limit_bytes, const Cupti& cupti);
  ~Recorder() { close(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void buffer(std::uint8_t* data, std::size_t valid);
  void close() noexcept;

 private:
  void write_block(std::uint32_t type, std::initializer_list<std::pair<const void*, std::size_t>> parts);

  const Cupti& cupti_;
  const std::size_t limit_;
  std::string path_;
  std::size_t written_ = 0;
  int file_ = -1;
  std::unordered_set<const char*> named_;
  std::vector<std::uint32_t> offsets_;
  std::string names_;
};

}  // namespace argus
