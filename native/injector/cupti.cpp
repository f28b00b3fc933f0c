#include "cupti.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace argus {
namespace {

struct Mapped {
  std::string cupti;                 ///< path of the libcupti that is mapped already
  std::string cudart_major;          ///< such as "12"
  std::vector<std::string> folders;  ///< of mapped libraries of CUDA and torch
};

bool begins(const char* text, const char* with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

int note_library(dl_phdr_info* info, std::size_t, void* out) {
  auto& mapped = *static_cast<Mapped*>(out);
  const char* path = info->dlpi_name ? info->dlpi_name : "";
  const char* slash = std::strrchr(path, '/');
  if (!slash) return 0;
  const char* name = slash + 1;
  // Older wheels of torch bring a copy of their own, libcupti-53e4e2b7.so.12.
  if (mapped.cupti.empty() && (begins(name, "libcupti.so") || begins(name, "libcupti-"))) mapped.cupti = path;
  constexpr const char* kCudart = "libcudart.so.";
  if (mapped.cudart_major.empty() && begins(name, kCudart)) mapped.cudart_major.assign(name + std::strlen(kCudart), 2);
  for (const char* of_cuda : {"libcudart", "libtorch_cuda", "libtorch_cpu", "libc10_cuda", "libcublas", "libnvrtc"})
    if (begins(name, of_cuda)) mapped.folders.emplace_back(path, slash);
  return 0;
}

/// Where a libcupti may lie that belongs to a library in `folder`. Wheels: nvidia/cuda_runtime/lib and
/// nvidia/cuda_cupti/lib; from CUDA 13 on nvidia/cu13/lib for both; torch/lib beside nvidia. Toolkits:
/// lib64 or targets/*/lib, and extras/CUPTI/lib64.
std::vector<std::string> places_beside(const std::string& folder) {
  std::vector<std::string> places = {folder};
  for (const char* wheel : {"/../../cuda_cupti/lib", "/../../nvidia/cuda_cupti/lib", "/../../nvidia/cu13/lib",
                            "/../extras/CUPTI/lib64", "/../../../extras/CUPTI/lib64"})
    places.push_back(folder + wheel);
  return places;
}

std::vector<std::string> candidates(const Settings& settings) {
  if (!settings.cupti_library.empty()) return {settings.cupti_library};
  Mapped mapped;
  dl_iterate_phdr(note_library, &mapped);
  std::vector<std::string> names;
  if (!mapped.cupti.empty()) names.push_back(mapped.cupti);
  // Never a CUPTI of another major version than the runtime in use.
  std::vector<std::string> libraries;
  if (mapped.cudart_major != "12") libraries.emplace_back("libcupti.so.13");
  if (mapped.cudart_major != "13") libraries.emplace_back("libcupti.so.12");
  const auto look_beside = [&](const std::string& folder) {
    for (const std::string& place : places_beside(folder))
      for (const std::string& library : libraries)
        if (access((place + "/" + library).c_str(), R_OK) == 0) names.push_back(place + "/" + library);
  };
  for (const std::string& folder : mapped.folders) look_beside(folder);
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"})
    if (!variable(home).empty()) look_beside(variable(home) + "/lib64");
  names.insert(names.end(), libraries.begin(), libraries.end());
  look_beside("/usr/local/cuda/lib64");
  return names;
}

enum class Harm { kHangsOrCrashes, kMayRecordNothing, kWrongGraphLaunches };

/// Versions of which their maker or a maintainer says that they are broken in what we call all the time. By API
/// number, the one thing that all copies of a version tell: of two updates with one number both are meant.
struct KnownBad {
  std::uint32_t first;
  std::uint32_t last;
  Harm harm;
  const char* name;
  const char* what;
};
constexpr KnownBad kKnownBad[] = {
    // NVIDIA, CUPTI 13.0 release notes, resolved in Update 1 (forums.developer.nvidia.com/t/341320): "a potential
    // deadlock that could occur while disabling the activity kind CONCURRENT_KERNEL", "a potential crash in the API
    // cuptiActivityFlushAll". The wheel 13.0.48 says 130000, 13.0.85 says 130001.
    {130000, 130000, Harm::kHangsOrCrashes, "13.0 before Update 1",
     "it may deadlock in cuptiActivityDisable and crash in cuptiActivityFlushAll; CUDA 13.0 Update 1 "
     "(nvidia-cuda-cupti 13.0.85) mends it"},
    // CUDA.jl#2328, "CUDA 12.4 Update 1: CUPTI does not trace kernels anymore": "Confirmed by upstream, fixed in CUDA
    // 12.5 Update 1". 12.4 and its update say 22, 12.5 and its update say 23; many work, so they are tried.
    {22, 23, Harm::kMayRecordNothing, "12.4 or 12.5",
     "12.4 Update 1 and 12.5 record no kernels in some programs (CUDA.jl#2328); CUDA 12.5 Update 1 mends it"},
    // NVIDIA, CUPTI release notes, resolved in 13.1 Update 1: "incorrect correlation IDs for cudaGraphLaunch API
    // calls and their associated kernel launches in profiling sessions after the first"; since when is not said.
    {0, 130100, Harm::kWrongGraphLaunches, "before 13.1 Update 1", ""},
};

const KnownBad* known_bad(std::uint32_t version, Harm harm) noexcept {
  for (const KnownBad& bad : kKnownBad)
    if (bad.harm == harm && version >= bad.first && version <= bad.last) return &bad;
  return nullptr;
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
    const abi::Result result = cupti->get_version_(&cupti->version_);
    if (result != abi::kSuccess) {
      reason = "cupti_error_" + std::to_string(result);
      return nullptr;
    }
    const KnownBad* bad = known_bad(cupti->version_, Harm::kHangsOrCrashes);
    if (bad && settings.cupti_library.empty()) {
      reason = "cupti_known_bad";
      say(std::string("CUPTI ") + bad->name + ": " + bad->what + ": no kernels (ARGUS_CUPTI_LIBRARY takes it as it is)");
      return nullptr;
    }
    if (!is_known(cupti->version_)) {
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

const char* Cupti::why_silent() const noexcept {
  const KnownBad* bad = known_bad(version_, Harm::kMayRecordNothing);
  return bad ? bad->what : "";
}

bool Cupti::graph_launches_survive_switching() const noexcept {
  return !known_bad(version_, Harm::kWrongGraphLaunches);
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

abi::Result Cupti::start(abi::RequestCallback request, abi::CompleteCallback complete, LaunchCalls calls) noexcept {
  abi::Result result = register_callbacks_(request, complete);
  if (result == abi::kSuccess) result = enable_(abi::kKindConcurrentKernel);
  if (result != abi::kSuccess) return result;
  enable_(abi::kKindMemcpy);
  enable_(abi::kKindMemset);
  calls_ = LaunchCalls::kNone;  // others may have switched them meanwhile
  record(calls);
  return abi::kSuccess;
}

void Cupti::stop() noexcept {
  for (const std::uint32_t kind : {abi::kKindConcurrentKernel, abi::kKindMemcpy, abi::kKindMemset}) disable_(kind);
  record(LaunchCalls::kNone);
}

void Cupti::record(LaunchCalls calls) noexcept {
  if (calls == calls_) return;
  if (!enable_runtime_api_ || !enable_driver_api_) return;  // CUPTI before 12.5: would be all calls or none
  switch_calls(abi::kKindRuntime, enable_runtime_api_, calls == LaunchCalls::kAll ? calls : LaunchCalls::kNone);
  switch_calls(abi::kKindDriver, enable_driver_api_, calls);
  if (calls != LaunchCalls::kNone) context_exists_ = true;
  calls_ = calls;
}

/// Launch calls alone: every other call of the runtime is far more frequent than what it could tell.
///
/// Before the first context, switching the calls on is enough. Later it records nothing, and once somebody
/// (a profiler's window) has switched the kind off it does not either: then the kind must be on with every
/// other call switched off. Both were observed on a card by others (CUPTI 13.0).
void Cupti::switch_calls(std::uint32_t kind, EnableCall enable, LaunchCalls calls) noexcept {
  const bool of_driver = kind == abi::kKindDriver;
  const auto is_launch = [of_driver](std::uint32_t call) {
    const auto among = [call](const auto& some) { return std::find(std::begin(some), std::end(some), call) != std::end(some); };
    return of_driver ? among(abi::kDriverLaunches) : among(abi::kRuntimeLaunches);
  };
  const auto wanted = [&](std::uint32_t call) {
    if (calls != LaunchCalls::kOfNccl) return calls == LaunchCalls::kAll && is_launch(call);
    return std::find(std::begin(abi::kNcclLaunches), std::end(abi::kNcclLaunches), call) != std::end(abi::kNcclLaunches);
  };
  const bool kind_is_on = calls_ != LaunchCalls::kNone && (of_driver || calls_ == LaunchCalls::kAll);
  const bool turn_kind_on = context_exists_ && calls != LaunchCalls::kNone && !kind_is_on;
  if (turn_kind_on) enable_(kind);
  for (std::uint32_t call = 1; call < abi::kCallbackIds; ++call)
    if (is_launch(call) || turn_kind_on) enable(call, wanted(call));
  if (context_exists_ && calls == LaunchCalls::kNone && kind_is_on) disable_(kind);
}

std::uint64_t Cupti::take_dropped() const noexcept {
  std::size_t dropped = 0;
  return dropped_ && dropped_(nullptr, 0, &dropped) == abi::kSuccess ? dropped : 0;
}

}  // namespace argus
