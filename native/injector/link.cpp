#include "link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace argus {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRetryFirst{500};
constexpr milliseconds kRetryLimit{10'000};
constexpr int kSocketBuffer = 4 * 1024 * 1024;  // the kernel grants what net.core.wmem_max allows

template <class Record>
struct Message {
  wire::Header header;
  Record record;
};

/// Whether whoever listens may learn of the training; twin of argus_core.link.stranger, which says who may,
/// and says it to the user.
bool may_learn(int connection, const sockaddr_un& address) noexcept {
  const auto trusted = [](uid_t user) { return user == 0 || user == getuid(); };
  ucred listener{};
  socklen_t size = sizeof listener;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0) return false;
  if (trusted(listener.uid)) return true;
  char path[sizeof address.sun_path];
  std::memcpy(path, address.sun_path, sizeof path);
  while (char* const slash = std::strrchr(path, '/')) {
    const bool root = slash == path;
    slash[root] = '\0';
    struct stat folder {};
    struct stat link {};
    if (stat(path, &folder) != 0 || folder.st_mode & (S_IWGRP | S_IWOTH) || lstat(path, &link) != 0) return false;
    if (trusted(link.st_uid)) return true;
    if (root) return false;
  }
  return false;
}

}  // namespace

Link::Link(std::string path, Identity identity, const NameTable& names)
    : path_(std::move(path)), identity_(std::move(identity)), names_(names), retry_(kRetryFirst) {}

bool Link::connect() noexcept {
  if (socket_ >= 0) return true;
  const auto now = steady_clock::now();
  if (now < retry_at_) return false;
  socket_ = open_socket();
  if (socket_ >= 0) {
    Message<wire::Hello> message{{}, hello(identity_)};
    if (send(wire::MessageType::kHello, 1, message.header, sizeof message) == Outcome::kFull) close();
  }
  if (socket_ < 0) {
    retry_at_ = now + retry_;
    retry_ = std::min(retry_ * 2, kRetryLimit);
    return false;
  }
  retry_ = kRetryFirst;
  connects_.fetch_add(1, std::memory_order_relaxed);
  names_sent_ = 0;
  return true;
}

int Link::open_socket() const noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  const int connection = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection < 0) return -1;
  setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      may_learn(connection, address))
    return connection;
  ::close(connection);
  return -1;
}

Link::Outcome Link::send(wire::MessageType type, std::size_t count, wire::Header& message,
                         std::size_t bytes) noexcept {
  if (socket_ < 0) return Outcome::kBroken;
  message.magic = wire::kMagic;
  message.version = wire::kVersion;
  message.type = static_cast<std::uint16_t>(type);
  message.count = static_cast<std::uint32_t>(count);
  message.sequence = ++sequence_;
  message.dropped = dropped();
  const auto patient_until = steady_clock::now() + patience_;
  for (;;) {
    if (::send(socket_, &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Outcome::kSent;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
      close();
      return Outcome::kBroken;
    }
    const auto limit = std::min(patient_until, deadline_.load(std::memory_order_relaxed));
    const auto left = std::chrono::duration_cast<milliseconds>(limit - steady_clock::now()).count();
    pollfd room{socket_, POLLOUT, 0};
    if (left <= 0 || poll(&room, 1, static_cast<int>(left)) <= 0) return Outcome::kFull;
  }
}

bool Link::send_names() noexcept {
  const auto& records = names_.records();
  while (names_sent_ < records.size()) {
    const std::size_t count = std::min(records.size() - names_sent_, kNamesAMessage);
    std::copy_n(records.begin() + static_cast<std::ptrdiff_t>(names_sent_), count, name_message_.records);
    const std::size_t bytes = sizeof(wire::Header) + count * sizeof(wire::Name);
    if (send(wire::MessageType::kNames, count, name_message_.header, bytes) != Outcome::kSent) {
      close();  // records without names mean nothing: begin anew
      return false;
    }
    names_sent_ += count;
  }
  return true;
}

void Link::flush() noexcept {
  send_records(wire::MessageType::kNcclOperations, std::exchange(operation_count_, 0), operations_.header,
               sizeof(wire::NcclOperation));
  const std::size_t kernels = std::exchange(count_, 0);
  if (send_records(wire::MessageType::kKernels, kernels, kernels_.header, sizeof(wire::Kernel)))
    sent_.fetch_add(kernels, std::memory_order_relaxed);
}

bool Link::send_records(wire::MessageType type, std::size_t count, wire::Header& message,
                        std::size_t record) noexcept {
  if (count == 0) return true;
  const std::size_t bytes = sizeof(wire::Header) + count * record;
  if (connect() && send_names() && send(type, count, message, bytes) == Outcome::kSent) return true;
  dropped_.fetch_add(count, std::memory_order_relaxed);
  return false;
}

void Link::send_state(const wire::ChannelState& state) noexcept {
  if (!connect() || !send_names()) return;
  Message<wire::ChannelState> message{{}, state};
  send(wire::MessageType::kChannels, 1, message.header, sizeof message);
}

void Link::close() noexcept {
  const int connection = socket_.exchange(-1);
  if (connection >= 0) ::close(connection);
}

void Link::abandon() noexcept { close(); }

}  // namespace argus
