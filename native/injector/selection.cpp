#include "selection.hpp"

#include <regex.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace argus {
namespace {

// Launchers, and helpers of a rank: none of them trains. As in argus_training/boot/_argus_boot.py, and compilers.
constexpr const char* kHelpers[] = {
    "torchrun",
    "torch.distributed.run",
    "torch/distributed/run.py",
    "torch.distributed.launch",
    "torch/distributed/launch.py",
    "argus-exporter",
    "argus_exporter.cli",
    "compile_worker",
    "resource_tracker",
    "ptxas",
    "cicc",
    "nvcc",
    "ninja",
};
// Their RANK, if any, is their parent's. A child of a fork server has the server's command line.
constexpr const char* kSpawned[] = {"multiprocessing.spawn", "multiprocessing.forkserver"};
constexpr std::size_t kCommandBytes = 32 * 1024;

std::string joined(const std::vector<std::string>& words, std::size_t count) {
  std::string text;
  for (std::size_t at = 0; at < std::min(count, words.size()); ++at) text += (at ? " " : "") + words[at];
  return text.substr(0, kCommandBytes);
}

/// Only the program and its own switches: an argument of the script may say anything.
std::string head(const std::vector<std::string>& command) {
  for (std::size_t at = 0; at < std::min<std::size_t>(6, command.size()); ++at)
    if (command[at] == "-c" || command[at] == "-m") return joined(command, 6);
  return joined(command, 2);
}

enum class Match { kYes, kNo, kNoExpression };

/// POSIX extended, not std::regex: that throws, and its recursion ends in a stack overflow on long lines.
Match search(const std::string& expression, const std::string& text) {
  regex_t compiled;
  if (regcomp(&compiled, expression.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return Match::kNoExpression;
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found ? Match::kYes : Match::kNo;
}

Match search(const char* name, const std::string& expression, const std::string& text) {
  const Match match = search(expression, text);
  if (match == Match::kNoExpression)
    say(std::string(name) + " is '" + expression +
        "'; allowed: a POSIX extended regular expression; going on without it");
  return match;
}

}  // namespace

std::string reason_to_skip(const Settings& settings, const std::vector<std::string>& command) {
  if (settings.disable || settings.disable_kernels) return "switched off";
  if (settings.producer_pid != 0 && settings.producer_pid != getpid())
    return "process " + std::to_string(settings.producer_pid) + " reports for this rank";
  const std::string program = head(command);
  for (const char* helper : kHelpers)
    if (program.find(helper) != std::string::npos) return std::string("helper process: ") + helper;
  const std::string whole = joined(command, command.size());
  if (!settings.command_exclude.empty() &&
      search("ARGUS_COMMAND_EXCLUDE", settings.command_exclude, whole) == Match::kYes)
    return "the command line matches ARGUS_COMMAND_EXCLUDE";
  if (!settings.command_include.empty() &&
      search("ARGUS_COMMAND_INCLUDE", settings.command_include, whole) == Match::kNo)
    return "the command line does not match ARGUS_COMMAND_INCLUDE";
  return "";
}

std::string reason_to_wait(const Identity& identity, const std::vector<std::string>& command) {
  if (identity.rank < 0) return "no rank in the environment";
  const std::string program = head(command);
  for (const char* spawned : kSpawned)
    if (program.find(spawned) != std::string::npos) return "multiprocessing started it";
  return "";
}

bool RankClaim::take(const Identity& identity, const std::string& exporter_socket) noexcept {
  // FNV-1a: the name has 107 bytes for a job and a path that may be longer.
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&hash](const std::string& text) {
    for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    hash = (hash ^ 0xFF) * 0x100000001b3U;
  };
  mix(identity.job);
  mix(exporter_socket);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "argus-cupti/%u/%d/%016llx",
                                   static_cast<unsigned>(getuid()), identity.rank,
                                   static_cast<unsigned long long>(hash));
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return true;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
  const bool taken = errno == EADDRINUSE;
  abandon();
  return !taken;
}

void RankClaim::abandon() noexcept {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

}  // namespace argus
