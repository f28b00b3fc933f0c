#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "identity.hpp"
#include "names.hpp"
#include "wire.hpp"

namespace argus {

/// The connection to the exporter; twin of argus_core.link. Non-blocking: what the socket does not take
/// within the patience that the caller grants (the worker waits, the training never does) is dropped and
/// counted, and the count travels with every message. Reconnects by itself with a growing back-off, and
/// says HELLO and all names again. Worker only, but for `abandon` in a forked child, the counters and the deadline.
class Link {
 public:
  static constexpr std::size_t kKernelsAMessage =
      (wire::kMaxMessageBytes - sizeof(wire::Header)) / sizeof(wire::Kernel);
  static constexpr std::size_t kOperationsAMessage =
      (wire::kMaxMessageBytes - sizeof(wire::Header)) / sizeof(wire::NcclOperation);
  static constexpr std::size_t kNamesAMessage =
      (wire::kMaxMessageBytes - sizeof(wire::Header)) / sizeof(wire::Name);

  Link(std::string path, Identity identity, const NameTable& names);

  /// Where the next kernel record goes; a full message is sent first.
  wire::Kernel& next_kernel() noexcept {
    if (count_ == kKernelsAMessage) flush();
    return kernels_.records[count_++];
  }
  /// Where the next operation of a kernel of NCCL's goes; a full message is sent first.
  wire::NcclOperation& next_operation() noexcept {
    if (operation_count_ == kOperationsAMessage) flush();
    return operations_.records[operation_count_++];
  }
  /// Sends the kernels and operations that are there, with their names ahead. Connects where there is no connection.
  void flush() noexcept;
  void send_state(const wire::ChannelState& state) noexcept;
  /// True while connected; tries to connect when the back-off has passed.
  bool connect() noexcept;
  void close() noexcept;
  /// In a forked child: closes the copy of the parent's socket, which would hide the parent's end.
  void abandon() noexcept;

  void set_patience(std::chrono::milliseconds patience) noexcept { patience_ = patience; }
  /// From then on no send waits, whatever the patience: the process ends. Any thread.
  void wait_no_longer_than(std::chrono::steady_clock::time_point deadline) noexcept {
    deadline_.store(deadline, std::memory_order_relaxed);
  }

  std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  std::uint64_t connects() const noexcept { return connects_.load(std::memory_order_relaxed); }

 private:
  enum class Outcome { kSent, kFull, kBroken };

  Outcome send(wire::MessageType type, std::size_t count, wire::Header& message, std::size_t bytes) noexcept;
  bool send_names() noexcept;
  bool send_records(wire::MessageType type, std::size_t count, wire::Header& message, std::size_t record) noexcept;
  int open_socket() const noexcept;

  const std::string path_;
  const Identity identity_;
  const NameTable& names_;
  std::atomic<int> socket_{-1};
  std::chrono::steady_clock::time_point retry_at_{};
  std::chrono::milliseconds retry_{0};
  std::chrono::milliseconds patience_{0};
  std::atomic<std::chrono::steady_clock::time_point> deadline_{std::chrono::steady_clock::time_point::max()};
  std::uint32_t sequence_ = 0;
  std::size_t names_sent_ = 0;
  std::size_t count_ = 0;
  std::size_t operation_count_ = 0;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> connects_{0};

  struct KernelMessage {
    wire::Header header;
    wire::Kernel records[kKernelsAMessage];
  };
  KernelMessage kernels_;
  struct OperationMessage {
    wire::Header header;
    wire::NcclOperation records[kOperationsAMessage];
  };
  OperationMessage operations_;
  struct NameMessage {
    wire::Header header;
    wire::Name records[kNamesAMessage];
  };
  NameMessage name_message_;
};

}  // namespace argus
