#include "other_users.hpp"

#include <link.h>

#include <cstdlib>
#include <cstring>

namespace argus {
namespace {

struct Tool {
  const char* reason;
  const char* variable;  ///< null: it sets none
  const char* library;   ///< part of a path
};

constexpr Tool kTools[] = {
    {"nsight_systems", "NSYS_PROFILING_SESSION_ID", "/libToolsInjection64.so"},
    {"nsight_compute", "NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/libcuda-injection.so"},
    {"compute_sanitizer", "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN", "/libsanitizer-collection.so"},
    {"nvrx", nullptr, "/nvrx_cupti_module."},         // straggler detection of nvidia-resiliency-ext
    {"parcagpu", nullptr, "/libparcagpucupti.so"},    // subscribes
    {"cupti_python", nullptr, "/site-packages/cupti/"},  // so torch's own CUPTI monitor (2.13 and later)
};

int note_tool(dl_phdr_info* info, std::size_t, void* out) {
  const char* path = info->dlpi_name ? info->dlpi_name : "";
  for (const Tool& tool : kTools)
    if (std::strstr(path, tool.library)) *static_cast<const char**>(out) = tool.reason;
  return 0;
}

}  // namespace

const char* other_user_of_cupti() noexcept {
  for (const Tool& tool : kTools)
    if (tool.variable && std::getenv(tool.variable)) return tool.reason;
  const char* mapped = "";
  dl_iterate_phdr(note_tool, &mapped);
  return mapped;
}

}  // namespace argus
