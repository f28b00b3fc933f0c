#include "identity.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace argus {
namespace {

struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world_size;
};

// First match wins: torchrun under Slurm sets both, and only torchrun's is per process.
constexpr Launcher kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
};

int number(const char* name) {
  const long value = whole_number(variable(name));
  return value <= 0x7fffffff ? static_cast<int>(value) : -1;
}

/// An id that torchrun made up would be a new label at every start.
bool is_uuid(const std::string& text) {
  if (text.size() != 36) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool dash = at == 8 || at == 13 || at == 18 || at == 23;
    if (dash ? text[at] != '-' : !std::strchr("0123456789abcdef", text[at])) return false;
  }
  return true;
}

std::string last_component(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string stem(const std::string& name) {
  const auto dot = name.find_last_of('.');
  return dot == std::string::npos || dot == 0 || dot + 1 == name.size() ? name : name.substr(0, dot);
}

std::string of_script(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (last_component(path) != "__main__.py") return stem(last_component(path));
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : last_component(path.substr(0, slash));
}

std::uint64_t now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// UTF-8 cut at a character boundary; the rest of the field stays zero.
template <std::size_t size>
void copy_text(char (&field)[size], const std::string& text) {
  std::size_t length = std::min(text.size(), size);
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
    --length;
  std::memcpy(field, text.data(), length);
}

}  // namespace

Identity identify(const Settings& settings, const std::vector<std::string>& command) {
  Identity identity;
  for (const Launcher& launcher : kLaunchers) {
    identity.rank = number(launcher.rank);
    if (identity.rank < 0) continue;
    identity.local_rank = number(launcher.local_rank);
    identity.world_size = number(launcher.world_size);
    break;
  }
  const std::string launcher_id = variable("TORCHELASTIC_RUN_ID");
  identity.job = settings.job;
  if (identity.job.empty()) identity.job = variable("SLURM_JOB_NAME");
  if (identity.job.empty() && launcher_id != "none" && !is_uuid(launcher_id)) identity.job = launcher_id;
  if (identity.job.empty()) identity.job = script_name(command);
  if (identity.job.empty()) identity.job = "unnamed";
  return identity;
}

std::vector<std::string> command_line() {
  std::string text;
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  char part[4096];
  for (ssize_t got = 0; file >= 0 && (got = read(file, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  if (file >= 0) close(file);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Run run_of(const std::vector<std::string>& command) {
  for (std::size_t at = 1; at < command.size(); ++at) {
    const std::string& word = command[at];
    if (word.size() < 2 || word[0] != '-') return {word, "", ""};
    if (word[1] == '-') {
      if (word == "--check-hash-based-pycs") ++at;
      continue;
    }
    // Short switches may be joined (-um pkg); the value of some is the rest of the word or the next word.
    for (std::size_t letter = 1; letter < word.size(); ++letter) {
      const char option = word[letter];
      if (!std::strchr("cmWX", option)) continue;
      const bool joined = letter + 1 < word.size();
      const std::string value = joined ? word.substr(letter + 1) : at + 1 < command.size() ? command[at + 1] : "";
      if (option == 'c') return {"", "", value};
      if (option == 'm') return {"", value, ""};
      if (!joined) ++at;
      break;
    }
  }
  return {};
}

std::string script_name(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  if (last_component(command[0]).rfind("python", 0) != 0) return of_script(command[0]);
  const Run run = run_of(command);
  if (run.module.empty()) return run.script == "-" ? "" : of_script(run.script);
  const auto dot = run.module.find_last_of('.');
  return dot == std::string::npos ? run.module : run.module.substr(dot + 1);
}

std::string socket_path(const Settings& settings) {
  if (!settings.socket.empty()) return settings.socket;
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  const std::string folder = runtime.empty() ? "/tmp/argus-" + std::to_string(getuid()) : runtime + "/argus";
  return folder + "/exporter.sock";
}

wire::Hello hello(const Identity& identity) {
  wire::Hello hello;
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.rank = identity.rank;
  hello.local_rank = identity.local_rank;
  hello.world_size = identity.world_size;
  hello.dp = hello.tp = hello.pp = hello.ep = -1;
  hello.dp_size = hello.tp_size = hello.pp_size = hello.ep_size = -1;
  hello.monotonic_ns = now(CLOCK_MONOTONIC);
  hello.realtime_ns = now(CLOCK_REALTIME);
  copy_text(hello.training_job, identity.job);
  char node[256] = {};
  if (gethostname(node, sizeof node - 1) == 0) copy_text(hello.node, node);
  hello.channels = static_cast<std::uint8_t>(1U << static_cast<unsigned>(wire::Channel::kKernels));
  return hello;
}

}  // namespace argus
