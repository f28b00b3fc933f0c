#include "names.hpp"

#include <cxxabi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace argus {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) ? 0xEDB88320U ^ (value >> 1U) : value >> 1U;
    table[byte] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrc = crc_table();

constexpr const char* kFurther = "(further kernels)";
constexpr const char* kNameless = "(nameless kernel)";

}  // namespace

std::uint32_t crc32(std::string_view bytes) noexcept {
  std::uint32_t value = 0xFFFFFFFFU;
  for (const char byte : bytes) value = kCrc[(value ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (value >> 8U);
  return value ^ 0xFFFFFFFFU;
}

void encode_name(std::string_view text, char (&field)[wire::kNameBytes]) noexcept {
  std::memset(field, 0, sizeof field);
  if (text.size() <= sizeof field) {
    std::memcpy(field, text.data(), text.size());
    return;
  }
  char mark[10];
  std::snprintf(mark, sizeof mark, "~%08x", crc32(text));
  const std::size_t mark_size = sizeof mark - 1;
  std::size_t cut = sizeof field - mark_size;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;  // within a character
  std::memcpy(field, text.data(), cut);
  std::memcpy(field + cut, mark, mark_size);
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

NameTable::NameTable() : cache_(std::size_t{1} << kCacheBits) { further_ = bind(kFurther); }

std::uint32_t NameTable::bind(std::string_view text) {
  wire::Name record;
  record.name_id = static_cast<std::uint32_t>(records_.size() + 1);
  encode_name(text, record.text);
  records_.push_back(record);
  return record.name_id;
}

std::uint32_t NameTable::of_text(const std::string& text) {
  const auto known = by_text_.find(text);
  if (known != by_text_.end()) return known->second;
  if (records_.size() >= kLimit) return further_;
  return by_text_.emplace(text, bind(text)).first->second;
}

std::uint32_t NameTable::look_up(const char* name) {
  Entry& entry = cache_[place(name)];
  const char* text = name ? name : kNameless;
  const auto known = by_linker_name_.find(text);
  std::uint32_t id = 0;
  if (known != by_linker_name_.end()) {
    id = known->second;
  } else if (records_.size() >= kLimit) {
    id = further_;
  } else {
    id = of_text(demangled(text));
    by_linker_name_.emplace(text, id);
  }
  entry = {name, id, buffer_};
  return id;
}

}  // namespace argus
