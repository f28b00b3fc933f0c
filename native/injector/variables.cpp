#include "variables.hpp"

#include <signal.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>

namespace argus {
namespace {

std::string stripped(const char* name) {
  const std::string text = variable(name);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// A pipe that nobody reads any more raises SIGPIPE, which ends every program that does not ignore it, as Python does.
void write_without_signal(const std::string& line) noexcept {
  sigset_t pipe;
  sigset_t pending;
  sigset_t before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  if (pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0) return;
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  const timespec at_once{};
  if (written < 0 && errno == EPIPE && !was_pending)
    while (sigtimedwait(&pipe, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool value_of(const table::Switch& variable) {
  const std::string text = stripped(variable.name);
  for (const char* yes : {"1", "true", "yes", "on"})
    if (strcasecmp(text.c_str(), yes) == 0) return true;
  for (const char* no : {"0", "false", "no", "off", ""})
    if (strcasecmp(text.c_str(), no) == 0) return false;
  say(std::string(variable.name) + " is '" + text + "'; allowed: 1 or 0; using 0");
  return false;
}

long value_of(const table::Number& variable) {
  const std::string text = stripped(variable.name);
  if (text.empty()) return variable.initial;
  const long value = whole_number(text);
  if (value >= variable.minimum) return value;
  say(std::string(variable.name) + " is '" + text + "'; allowed: a whole number of " +
      std::to_string(variable.minimum) + " or more; using " + std::to_string(variable.initial));
  return variable.initial;
}

std::size_t value_of(const table::Choice& variable) {
  const std::string text = stripped(variable.name);
  if (text.empty()) return 0;
  std::string allowed;
  for (std::size_t at = 0; at < std::size(variable.allowed) && variable.allowed[at]; ++at) {
    if (text == variable.allowed[at]) return at;
    allowed += (at ? " or " : "") + std::string(variable.allowed[at]);
  }
  say(std::string(variable.name) + " is '" + text + "'; allowed: " + allowed + "; using " + variable.allowed[0]);
  return 0;
}

std::string value_of(const table::Text& variable) { return stripped(variable.name); }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

long whole_number(const std::string& text) noexcept {
  if (text.empty() || text.size() > 18) return -1;
  long value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return -1;
    value = value * 10 + (digit - '0');
  }
  return value;
}

void say(const std::string& text) noexcept {
  try {
    const std::string line = "argus: " + text + "\n";
    // One write: lines of the ranks of a host do not mix. A closed stderr is no concern of ours.
    const int before = errno;
    write_without_signal(line);
    errno = before;
  } catch (...) {
  }
}

}  // namespace argus
