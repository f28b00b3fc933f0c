#include "cupti.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace argus {
namespace {

struct Mapped {
  std::string cupti;          ///< path of the libcupti that is mapped already
  std::string cudart_major;   ///< such as "12"
};

int note_library(dl_phdr_info* info, std::size_t, void* out) {
  auto& mapped = *static_cast<Mapped*>(out);
  const char* path = info->dlpi_name ? info->dlpi_name : "";
  if (mapped.cupti.empty() && std::strstr(path, "/libcupti.so")) mapped.cupti = path;
  const char* cudart = std::strstr(path, "/libcudart.so.");
  if (cudart && mapped.cudart_major.empty()) mapped.cudart_major.assign(cudart + std::strlen("/libcudart.so."), 2);
  return 0;
}

std::vector<std::string> candidates(const Settings& settings) {
  if (!settings.cupti_library.empty()) return {settings.cupti_library};
  Mapped mapped;
  dl_iterate_phdr(note_library, &mapped);
  std::vector<std::string> names;
  if (!mapped.cupti.empty()) names.push_back(mapped.cupti);
  // Never a CUPTI of another major version than the runtime in use.
  if (mapped.cudart_major != "12") names.emplace_back("libcupti.so.13");
  if (mapped.cudart_major != "13") names.emplace_back("libcupti.so.12");
  return names;
}

/// API numbers: 18 is CUPTI 12.1, 28 is 12.9; from 13.0 on the number says it: 130001.
bool is_known(std::uint32_t version) noexcept {
  return (version >= 18 && version < 100) || (version >= 130000 && version < 140000);
}

template <class Function>
void resolve_symbol(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::unique_ptr<Cupti> Cupti::open(const Settings& settings, std::string& reason) {
  for (const std::string& name : candidates(settings)) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      debug(settings, std::string("cannot load CUPTI: ") + dlerror());
      continue;
    }
    std::unique_ptr<Cupti> cupti(new Cupti);
    if (!cupti->resolve(library)) {
      reason = "cupti_incomplete";
      return nullptr;
    }
    if (cupti->get_version_(&cupti->version_) != abi::kSuccess || !is_known(cupti->version_)) {
      reason = "cupti_version";
      say("CUPTI of API number " + std::to_string(cupti->version_) +
          " is not known; known: 18 to 99 (CUDA 12.1 and later) and 130000 to 139999: no kernels");
      return nullptr;
    }
    debug(settings, "CUPTI " + name + ", API number " + std::to_string(cupti->version_));
    return cupti;
  }
  reason = "cupti_missing";
  return nullptr;
}

bool Cupti::resolve(void* library) noexcept {
  resolve_symbol(library, "cuptiGetVersion", get_version_);
  resolve_symbol(library, "cuptiActivityRegisterCallbacks", register_callbacks_);
  resolve_symbol(library, "cuptiActivityEnable", enable_);
  resolve_symbol(library, "cuptiActivityDisable", disable_);
  resolve_symbol(library, "cuptiActivityGetNextRecord", next_record_);
  resolve_symbol(library, "cuptiActivityFlushAll", flush_all_);
  resolve_symbol(library, "cuptiActivityGetNumDroppedRecords", dropped_);
  resolve_symbol(library, "cuptiGetTimestamp", timestamp_);
  resolve_symbol(library, "cuptiActivityEnableRuntimeApi", enable_runtime_api_);
  resolve_symbol(library, "cuptiActivityEnableDriverApi", enable_driver_api_);
  return get_version_ && register_callbacks_ && enable_ && disable_ && next_record_ && flush_all_;
}

abi::Result Cupti::start(abi::RequestCallback request, abi::CompleteCallback complete, bool launches) noexcept {
  abi::Result result = register_callbacks_(request, complete);
  if (result == abi::kSuccess) result = enable_(abi::kKindConcurrentKernel);
  if (result != abi::kSuccess) return result;
  enable_(abi::kKindMemcpy);
  enable_(abi::kKindMemset);
  if (launches) trace_launches();
  return abi::kSuccess;
}

void Cupti::stop(bool launches) noexcept {
  for (const std::uint32_t kind : {abi::kKindConcurrentKernel, abi::kKindMemcpy, abi::kKindMemset}) disable_(kind);
  if (!launches || !enable_runtime_api_ || !enable_driver_api_) return;
  switch_launches(0);
  if (launches_traced_before_) {
    disable_(abi::kKindRuntime);
    disable_(abi::kKindDriver);
  }
}

/// Launch calls alone: every other call of the runtime is far more frequent than what it could tell.
///
/// Before the first context, switching the calls on is enough. Later it records nothing, and once somebody
/// (a profiler's window) has switched the kind off it does not either: then the kind must be on with every
/// other call switched off. Both were observed on a card by others (CUPTI 13.0).
void Cupti::trace_launches() noexcept {
  if (!enable_runtime_api_ || !enable_driver_api_) return;  // CUPTI before 12.5: would be all calls or none
  if (launches_traced_before_) {
    enable_(abi::kKindRuntime);
    enable_(abi::kKindDriver);
    for (std::uint32_t call = 1; call < abi::kCallbackIds; ++call) {
      const auto is_launch = [call](const auto& calls) {
        return std::find(std::begin(calls), std::end(calls), call) != std::end(calls);
      };
      if (!is_launch(abi::kRuntimeLaunches)) enable_runtime_api_(call, 0);
      if (!is_launch(abi::kDriverLaunches)) enable_driver_api_(call, 0);
    }
  }
  launches_traced_before_ = true;
  switch_launches(1);
}

void Cupti::switch_launches(std::uint8_t on) const noexcept {
  for (const std::uint32_t call : abi::kRuntimeLaunches) enable_runtime_api_(call, on);
  for (const std::uint32_t call : abi::kDriverLaunches) enable_driver_api_(call, on);
}

std::uint64_t Cupti::take_dropped() const noexcept {
  std::size_t dropped = 0;
  return dropped_ && dropped_(nullptr, 0, &dropped) == abi::kSuccess ? dropped : 0;
}

}  // namespace argus
