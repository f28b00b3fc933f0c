#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wire.hpp"

namespace argus {

/// Text of a NAMES record: what is too long is cut and marked by the CRC-32 of the whole, exactly as
/// argus_core.wire.encode_name does it.
void encode_name(std::string_view text, char (&field)[wire::kNameBytes]) noexcept;

/// CRC-32 of zlib.
std::uint32_t crc32(std::string_view bytes) noexcept;

/// Readable form of a kernel's linker name; the name itself where it is none.
std::string demangled(const char* name);

/// Interned names. Ids start at 1 and hold for the life of the process, so that a new connection needs only
/// the same records again. Worker only.
class NameTable {
 public:
  /// Distinct names; the kernels of any more share one name. The exporter refuses a connection with 16,384.
  static constexpr std::size_t kLimit = 8'000;

  NameTable();

  /// Id of a kernel by CUPTI's pointer to its linker name. The pointer alone is looked up, but for the
  /// first time after `new_buffer`: a module that was unloaded may leave its address to another's name.
  std::uint32_t of_kernel(const char* name) {
    const Entry& entry = cache_[place(name)];
    return entry.name == name && entry.buffer == buffer_ ? entry.id : look_up(name);
  }
  std::uint32_t of_text(const std::string& text);
  void new_buffer() noexcept { ++buffer_; }

  /// All records, in the order of their ids.
  const std::vector<wire::Name>& records() const noexcept { return records_; }

 private:
  struct Entry {
    const char* name = nullptr;
    std::uint32_t id = 0;
    std::uint32_t buffer = 0;
  };
  static constexpr std::size_t kCacheBits = 12;

  static std::size_t place(const char* name) noexcept {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15U) >>
                                    (64 - kCacheBits));
  }
  std::uint32_t look_up(const char* name);
  std::uint32_t bind(std::string_view text);

  std::vector<Entry> cache_;  ///< one entry a place: a collision costs a lookup by text
  std::uint32_t buffer_ = 1;
  std::unordered_map<std::string, std::uint32_t> by_text_;
  std::unordered_map<std::string, std::uint32_t> by_linker_name_;
  std::vector<wire::Name> records_;
  std::uint32_t further_ = 0;  ///< id of all names beyond the limit
};

}  // namespace argus
