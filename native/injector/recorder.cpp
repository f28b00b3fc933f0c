#include "recorder.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace argus {
namespace {

constexpr char kMagic[] = "ARGUSREC";
constexpr std::uint32_t kFormat = 1;
constexpr std::uint32_t kNames = 1;
constexpr std::uint32_t kBuffer = 2;

void append(std::string& text, const void* data, std::size_t bytes) {
  text.append(static_cast<const char*>(data), bytes);
}

}  // namespace

Recorder::Recorder(const std::string& path, int rank, std::size_t limit_bytes, const Cupti& cupti)
    : cupti_(cupti), limit_(limit_bytes), path_(path + ".rank" + std::to_string(rank)) {
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file_ < 0) {
    say("cannot record to " + path_ + ": " + std::strerror(errno));
    return;
  }
  std::uint64_t ticks = 0;
  cupti.timestamp(ticks);
  const std::uint64_t ns = unix_now();
  const std::uint32_t version = cupti.version();
  std::string head(kMagic, sizeof kMagic - 1);
  append(head, &kFormat, sizeof kFormat);
  append(head, &version, sizeof version);
  append(head, &ns, sizeof ns);
  append(head, &ticks, sizeof ticks);
  if (write(file_, head.data(), head.size()) != static_cast<ssize_t>(head.size())) close();
  written_ = head.size();
}

void Recorder::buffer(std::uint8_t* data, std::size_t valid) {
  if (file_ < 0) return;
  offsets_.clear();
  names_.clear();
  for (void* record = nullptr; (record = cupti_.next(data, valid, record));) {
    offsets_.push_back(static_cast<std::uint32_t>(static_cast<std::uint8_t*>(record) - data));
    const auto kind = abi::read<std::uint32_t>(record, 0);
    if (kind != abi::kKindConcurrentKernel && kind != abi::kKindKernel) continue;
    const auto* name = abi::read<const char*>(record, abi::Kernel::kName);
    if (!name || !named_.insert(name).second) continue;
    const auto pointer = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(name));
    const auto length = static_cast<std::uint32_t>(std::strlen(name));
    append(names_, &pointer, sizeof pointer);
    append(names_, &length, sizeof length);
    append(names_, name, length);
  }
  if (!names_.empty()) write_block(kNames, {{names_.data(), names_.size()}});
  const auto count = static_cast<std::uint32_t>(offsets_.size());
  write_block(kBuffer, {{&count, sizeof count}, {offsets_.data(), offsets_.size() * 4}, {data, valid}});
}

void Recorder::write_block(std::uint32_t type, std::initializer_list<std::pair<const void*, std::size_t>> parts) {
  if (file_ < 0) return;
  std::uint32_t head[2] = {type, 0};
  iovec vector[4] = {{head, sizeof head}, {}, {}, {}};
  int used = 1;
  for (const auto& [data, bytes] : parts) {
    vector[used++] = {const_cast<void*>(data), bytes};
    head[1] += static_cast<std::uint32_t>(bytes);
  }
  const std::size_t bytes = sizeof head + head[1];
  if (written_ + bytes > limit_) {
    say("recording " + path_ + " ends at its limit of " + std::to_string(limit_ >> 20U) + " MiB");
    close();
    return;
  }
  const ssize_t written = writev(file_, vector, used);
  if (written == static_cast<ssize_t>(bytes)) {
    written_ += bytes;
    return;
  }
  const int error = errno;
  [[maybe_unused]] const int cut = ftruncate(file_, static_cast<off_t>(written_));  // a whole block or none
  say("recording " + path_ + " ends: " + (written < 0 ? std::strerror(error) : "the disk is full"));
  close();
}

void Recorder::close() noexcept {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

}  // namespace argus
