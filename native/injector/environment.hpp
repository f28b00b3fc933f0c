#pragma once

#include <cstdint>
#include <string>

#include "variables.hpp"

namespace argus {

/// For which kernels launch times are recorded; in the order of ARGUS_ISSUE_LATENCY's values.
enum class LaunchTimes { kSampled, kAlways, kNever };

/// What the environment asks for; names, defaults and limits are in settings_table.hpp.
struct Settings {
  bool disable = false;
  bool disable_kernels = false;
  bool debug = false;
  LaunchTimes issue_latency = LaunchTimes::kNever;
  std::string socket;
  std::string job;
  std::string command_include;
  std::string command_exclude;
  std::string cupti_library;
  std::string record;
  std::string next_injection;
  long flush_milliseconds = 0;
  long producer_pid = 0;
  long cupti_buffers = 0;
  long cupti_buffer_kibibytes = 0;
  long record_mebibytes = 0;
  long kernels_cost = 0;
};

/// A value that cannot be used is said on stderr once, and the default stands: training never stops for
/// it. Thread of InitializeInjection only.
Settings read_settings();

/// As `say`, where ARGUS_DEBUG is set.
void debug(const Settings& settings, const std::string& text) noexcept;

}  // namespace argus
