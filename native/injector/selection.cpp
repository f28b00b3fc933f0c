#include "selection.hpp"

#include <regex.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace argus {
namespace {

// Launchers, and helpers of a rank: none of them trains. As in argus_training/boot/_argus_boot.py, and compilers.
// A folder, a user's script or an argument may have such a name as a part of its own.
constexpr const char* kPrograms[] = {  // or the script of one; whole components at the end of a path
    "torchrun",
    "torch/distributed/run.py",
    "torch/distributed/launch.py",
    "torch/_inductor/compile_worker/__main__.py",
    "argus-exporter",
    "ptxas",
    "cicc",
    "nvcc",
    "ninja",
};
constexpr const char* kModules[] = {  // or one within it
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch._inductor",
    "argus_exporter.cli",
};
constexpr const char* kInCode[] = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "argus_exporter.cli",
    "compile_worker",
    "resource_tracker",
};
// Their RANK, if any, is their parent's. A child of a fork server has the server's command line.
constexpr const char* kSpawned[] = {"multiprocessing.spawn", "multiprocessing.forkserver"};
constexpr std::size_t kCommandBytes = 32 * 1024;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t at = 0; at < words.size(); ++at) text += (at ? " " : "") + words[at];
  return text.substr(0, kCommandBytes);
}

bool ends_as(const std::string& path, const std::string& name) {
  if (path.size() <= name.size()) return path == name;
  return path[path.size() - name.size() - 1] == '/' && path.compare(path.size() - name.size(), name.size(), name) == 0;
}

bool within(const std::string& module, const std::string& package) {
  return module == package || module.rfind(package + ".", 0) == 0;
}

/// Which of the helpers this is; empty: none. What a script is given as arguments may say anything.
std::string helper_of(const std::vector<std::string>& command) {
  const Run run = run_of(command);
  for (const char* name : kPrograms)
    if ((!command.empty() && ends_as(command[0], name)) || ends_as(run.script, name)) return name;
  for (const char* name : kModules)
    if (within(run.module, name)) return name;
  for (const char* name : kInCode)
    if (run.code.find(name) != std::string::npos) return name;
  return "";
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
  const std::string helper = helper_of(command);
  if (!helper.empty()) return "helper process: " + helper;
  const std::string whole = joined(command);
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
  const std::string code = run_of(command).code;
  for (const char* spawned : kSpawned)
    if (code.find(spawned) != std::string::npos) return "multiprocessing started it";
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
