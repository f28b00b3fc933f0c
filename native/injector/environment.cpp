#include "environment.hpp"

#include "settings_table.hpp"

namespace argus {

Settings read_settings() {
  Settings settings;
  settings.disable = value_of(table::kDisable);
  settings.disable_kernels = value_of(table::kDisableKernels);
  settings.debug = value_of(table::kDebug);
  settings.issue_latency = static_cast<LaunchTimes>(value_of(table::kIssueLatency));
  settings.socket = value_of(table::kSocket);
  settings.job = value_of(table::kJob);
  settings.command_include = value_of(table::kCommandInclude);
  settings.command_exclude = value_of(table::kCommandExclude);
  settings.cupti_library = value_of(table::kCuptiLibrary);
  settings.record = value_of(table::kRecord);
  settings.next_injection = value_of(table::kNextInjection);
  settings.flush_milliseconds = value_of(table::kFlushMilliseconds);
  settings.producer_pid = value_of(table::kProducerPid);
  settings.cupti_buffers = value_of(table::kCuptiBuffers);
  settings.cupti_buffer_kibibytes = value_of(table::kCuptiBufferKibibytes);
  settings.record_mebibytes = value_of(table::kRecordMebibytes);
  settings.kernels_cost = value_of(table::kKernelsCost);
  return settings;
}

void debug(const Settings& settings, const std::string& text) noexcept {
  if (settings.debug) say(text);
}

}  // namespace argus
