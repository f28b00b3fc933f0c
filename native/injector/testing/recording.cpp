#include "recording.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace recording {
namespace {

constexpr std::uint32_t kMemcpy = 1, kMemset = 2, kKernel = 10;

template <class T>
T get(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  if (at + sizeof(T) > bytes.size()) throw std::runtime_error("recording ends within a block at byte " + std::to_string(at));
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void move_time(std::vector<std::uint8_t>& bytes, std::size_t at, std::int64_t shift) {
  const auto moved = static_cast<std::uint64_t>(static_cast<std::int64_t>(get<std::uint64_t>(bytes, at)) + shift);
  std::memcpy(bytes.data() + at, &moved, sizeof moved);
}

}  // namespace

Recording read(const std::string& path, std::uint64_t start) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() < 32 || std::memcmp(bytes.data(), "ARGUSREC", 8) != 0 || get<std::uint32_t>(bytes, 8) != 1)
    throw std::runtime_error(path + " is no recording of format 1");
  Recording recording;
  recording.cupti_version = get<std::uint32_t>(bytes, 12);
  std::map<std::uint64_t, const char*> texts;
  for (std::size_t at = 32; at < bytes.size();) {
    const auto type = get<std::uint32_t>(bytes, at);
    const auto size = get<std::uint32_t>(bytes, at + 4);
    const std::size_t end = at + 8 + size;
    if (end > bytes.size()) throw std::runtime_error(path + ": block at byte " + std::to_string(at) + " is cut");
    at += 8;
    if (type == 1) {
      while (at < end) {
        const auto pointer = get<std::uint64_t>(bytes, at);
        const auto length = get<std::uint32_t>(bytes, at + 8);
        recording.names.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at + 12, length);
        texts[pointer] = recording.names.back().c_str();
        at += 12 + length;
      }
    } else if (type == 2) {
      Buffer buffer;
      const auto count = get<std::uint32_t>(bytes, at);
      for (std::uint32_t index = 0; index < count; ++index)
        buffer.offsets.push_back(get<std::uint32_t>(bytes, at + 4 + 4 * index));
      buffer.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at + 4 + 4 * count),
                          bytes.begin() + static_cast<std::ptrdiff_t>(end));
      recording.buffers.push_back(std::move(buffer));
    }
    at = end;
  }
  std::int64_t shift = 0;
  for (Buffer& buffer : recording.buffers) {
    for (std::size_t index = 0; index < buffer.offsets.size(); ++index) {
      const std::size_t at = buffer.offsets[index];
      const std::size_t next = index + 1 < buffer.offsets.size() ? buffer.offsets[index + 1] : buffer.bytes.size();
      const auto kind = get<std::uint32_t>(buffer.bytes, at);
      recording.sizes[kind] = next - at;
      const bool call = kind == 4 || kind == 5;
      if (!call && kind != kKernel && kind != kMemcpy && kind != kMemset) continue;
      const std::size_t begin = call ? 8 : 16;
      if (shift == 0) shift = static_cast<std::int64_t>(start - get<std::uint64_t>(buffer.bytes, at + begin));
      for (const std::size_t offset : {begin, begin + 8}) move_time(buffer.bytes, at + offset, shift);
      if (kind != kKernel) continue;
      const auto known = texts.find(get<std::uint64_t>(buffer.bytes, at + 104));
      const char* name = known == texts.end() ? nullptr : known->second;
      std::memcpy(buffer.bytes.data() + at + 104, &name, sizeof name);
    }
  }
  return recording;
}

}  // namespace recording
