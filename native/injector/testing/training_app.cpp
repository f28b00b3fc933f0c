// Stand-in for a training process: brings CUDA up, then does what its arguments say, in order, and ends with a
// line of JSON: what was emitted, and the injector's statistics.
//
//   kernels:N[@RATE]   N kernels (every 16th followed by a copy, every 64th by a memory set), as fast as can be or
//                      so many a second, each with a launch call 8 us before its start
//   minutes:M:RATE     kernels of 10 us, so many a second, of the last M minutes
//   late:N             the same, but launch calls come after their kernels
//   threads:T:N        N kernels in each of T threads at once
//   set:VALUE:BYTES    a memory set of so many bytes to that value
//   graph:N:REPLAYS    REPLAYS launches of a graph of N kernels
//   invalid:N          N kernels that end before they start
//   unfinished:N       N kernels that have not ended yet
//   steal              another profiler takes the callbacks, runs a window of 5000 kernels and leaves
//   window             the same with the injector standing aside
//   pause, rearm, silent, flush   the injector's controls
//   map:PATH           load this library, as a tool would
//   settle             until the injector has read and sent or dropped all that was emitted
//   stopped            until the injector collects no longer
//   replay:PATH        hand over the buffers of a recording
//   fork               a child that ends by exit()
//   linger:MS          a child that outlives us
//   spawn:ACTION       this program again as a child process, which does ACTION
//   exec:ACTION        this program again in our place
//   adopt:RANK         say that this process is that rank of 4, of job "adopted"
//   status:N           end with this status
//   sleep:MS
//   signals            note which signals the injector's thread blocks

#include <dirent.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "../control.h"
#include "fake_cupti.hpp"
#include "recording.hpp"

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kMemcpy = 1, kMemset = 2, kDriver = 4, kRuntime = 5, kKernel = 10;
constexpr std::uint64_t kIssueNs = 8'000;
constexpr std::uint64_t kWindowKernels = 5'000;

/// libcupti, its test interface and the injector, as they are loaded in this process.
struct Libraries {
  void* cupti = nullptr;
  void* injector = nullptr;
  fake::Emit emit = nullptr;
  int (*timestamp)(std::uint64_t*) = nullptr;

  void find() {
    cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    const char* path = std::getenv("CUDA_INJECTION64_PATH");
    injector = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    emit = symbol<fake::Emit>(cupti, "fake_emit");
    timestamp = symbol<int (*)(std::uint64_t*)>(cupti, "cuptiGetTimestamp");
  }
  template <class Function>
  static Function symbol(void* library, const char* name) {
    return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  }
  int control(const char* name) const {
    auto* function = symbol<int (*)()>(injector, name);
    return function ? function() : ARGUS_NOT_ACTIVE;
  }
  int rearm(int silent) const {
    auto* function = symbol<int (*)(int)>(injector, "argus_cupti_rearm");
    return function ? function(silent) : ARGUS_NOT_ACTIVE;
  }
  bool statistics(ArgusCuptiStatistics& out) const {
    auto* function = symbol<int (*)(ArgusCuptiStatistics*, std::size_t)>(injector, "argus_cupti_statistics");
    return function && function(&out, sizeof out) == ARGUS_OK;
  }
  fake::Counts counts() const {
    fake::Counts counts;
    if (auto* read = symbol<fake::ReadCounts>(cupti, "fake_counts")) read(&counts);
    return counts;
  }
};

Libraries libraries;
std::string long_name;
std::uint64_t emitted = 0;
std::uint64_t hot_ns = 0;
int child_status = -1;
int adopted = 1;
int exit_status = 0;
std::string blocked_signals;
std::uint64_t window_kernels = 0;
std::uint64_t window_foreign = 0;

const char* name_of(std::uint64_t index) {
  static const char* const names[] = {
      "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi",
      "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
      "flash_fwd_kernel",
      long_name.c_str(),
  };
  return names[index % 4];
}

std::uint64_t now_ticks() {
  std::uint64_t ticks = 0;
  if (libraries.timestamp) libraries.timestamp(&ticks);
  return ticks;
}

void emit(const fake::Activity& activity) {
  if (libraries.emit) libraries.emit(&activity);
}

std::uint32_t next_correlation() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

fake::Activity launch(std::uint32_t correlation, std::uint64_t start, std::uint32_t kind, std::uint32_t call) {
  fake::Activity activity;
  activity.kind = kind;
  activity.call = call;
  activity.correlation = correlation;
  activity.start = start;
  activity.end = start + 3'000;
  return activity;
}

/// One kernel and what belongs to it; kernels last 10, 20, 30 and 40 us in turn.
std::uint64_t one_kernel(std::uint64_t index, std::uint64_t ticks, bool late_launch) {
  const std::uint32_t correlation = next_correlation();
  // Half of the launches are the runtime's, half the driver's, as compiled code does it.
  const bool driver = index % 2 == 1;
  const fake::Activity call = launch(correlation, ticks, driver ? kDriver : kRuntime, driver ? 307U : 211U);
  if (!late_launch) emit(call);
  fake::Activity kernel;
  kernel.stream = index % 4 == 1 ? 31 : 7;
  kernel.correlation = correlation;
  kernel.start = ticks + kIssueNs;
  kernel.end = kernel.start + 10'000 * (index % 4 + 1);
  kernel.name = name_of(index);
  emit(kernel);
  if (late_launch) emit(call);
  emit(launch(correlation, ticks, kRuntime, 41));  // some other call, which nobody asked for
  std::uint64_t count = 1;
  for (const auto& [every, kind] : {std::pair{16U, kMemcpy}, std::pair{64U, kMemset}}) {
    if (index % every != 0) continue;
    fake::Activity copy;
    copy.kind = kind;
    copy.stream = 9;
    copy.correlation = next_correlation();
    copy.start = ticks;
    copy.end = ticks + 2'000;
    copy.bytes = 4'097;
    emit(copy);
    ++count;
  }
  return count;
}

void set(std::uint64_t value, std::uint64_t bytes) {
  fake::Activity made;
  made.kind = kMemset;
  made.correlation = next_correlation();
  made.start = now_ticks();
  made.end = made.start + 1'000;
  made.bytes = bytes;
  made.value = static_cast<std::uint32_t>(value);
  emit(made);
}

void kernels(std::uint64_t count, double rate, bool late) {
  const auto begin = steady_clock::now();
  std::uint64_t ticks = now_ticks();
  for (std::uint64_t index = 0; index < count; ++index) {
    if (index % 64 == 0) {
      if (rate > 0)
        std::this_thread::sleep_until(begin + std::chrono::nanoseconds(static_cast<std::int64_t>(
                                                  static_cast<double>(index) / rate * 1e9)));
      ticks = now_ticks() - 100'000;
    }
    emitted += one_kernel(index, ticks, late);
  }
  hot_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - begin).count());
}

void threads(std::uint64_t count, std::uint64_t each) {
  std::vector<std::thread> running;
  std::vector<std::uint64_t> totals(count);
  for (std::uint64_t thread = 0; thread < count; ++thread)
    running.emplace_back([&total = totals[thread], each] {
      std::uint64_t mine = 0;
      for (std::uint64_t index = 0; index < each; ++index) mine += one_kernel(index, now_ticks() - 100'000, false);
      total = mine;
    });
  for (std::thread& thread : running) thread.join();
  for (const std::uint64_t total : totals) emitted += total;
}

void graph(std::uint64_t nodes, std::uint64_t replays) {
  for (std::uint64_t replay = 0; replay < replays; ++replay) {
    const std::uint32_t correlation = next_correlation();
    std::uint64_t ticks = now_ticks() - 100'000;
    emit(launch(correlation, ticks, kRuntime, 311));
    ticks += kIssueNs;
    for (std::uint64_t node = 0; node < nodes; ++node, ++emitted) {
      fake::Activity kernel;
      kernel.correlation = correlation;
      kernel.graph = 3;
      kernel.start = ticks;
      kernel.end = ticks + 1'000;
      kernel.name = name_of(node);
      emit(kernel);
      ticks += 1'000;
    }
  }
}

void past_kernels(std::uint64_t minutes, std::uint64_t rate) {
  const std::uint64_t count = minutes * 60 * rate;
  const std::uint64_t begin = now_ticks() - minutes * 60'000'000'000;
  fake::Activity kernel;
  kernel.name = name_of(0);
  for (std::uint64_t index = 0; index < count; ++index, ++emitted) {
    kernel.start = begin + index * 1'000'000'000 / rate;
    kernel.end = kernel.start + 10'000;
    emit(kernel);
    ArgusCuptiStatistics at{};  // no training has as many at once: the worker is waited for
    while (index % 4096 == 0 && libraries.statistics(at) && at.free_buffers < 16) std::this_thread::sleep_for(milliseconds(1));
  }
}

void odd_kernels(std::uint64_t count, bool unfinished) {
  for (std::uint64_t index = 0; index < count; ++index, ++emitted) {
    fake::Activity kernel;
    kernel.start = now_ticks();
    kernel.end = unfinished ? 0 : kernel.start - 1'000;
    kernel.name = name_of(0);
    emit(kernel);
  }
}

// Kineto, as far as it matters: callbacks of its own, kinds on and off, a forced flush at the end.
std::uint8_t profiler_memory[1 << 21];
void profiler_request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = profiler_memory;
  *size = sizeof profiler_memory;
  *most = 0;
}
void profiler_complete(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
  window_foreign += buffer != profiler_memory;
}

void profiler_window() {
  using Callback = void (*)();
  auto* registers = Libraries::symbol<int (*)(Callback, Callback)>(libraries.cupti, "cuptiActivityRegisterCallbacks");
  auto* enable = Libraries::symbol<int (*)(std::uint32_t)>(libraries.cupti, "cuptiActivityEnable");
  auto* disable = Libraries::symbol<int (*)(std::uint32_t)>(libraries.cupti, "cuptiActivityDisable");
  auto* flush = Libraries::symbol<int (*)(std::uint32_t)>(libraries.cupti, "cuptiActivityFlushAll");
  if (!registers || !enable || !disable || !flush) return;
  registers(reinterpret_cast<Callback>(profiler_request), reinterpret_cast<Callback>(profiler_complete));
  constexpr std::uint32_t kinds[] = {kKernel, kMemcpy, kMemset, kRuntime, kDriver};
  for (const std::uint32_t kind : kinds) enable(kind);
  const fake::Counts before = libraries.counts();
  for (std::uint64_t index = 0; index < kWindowKernels; ++index) {
    fake::Activity kernel;
    kernel.start = now_ticks() - 100'000;
    kernel.end = kernel.start + 1'000;
    kernel.name = name_of(2);
    emit(kernel);
  }
  window_kernels += libraries.counts().kept - before.kept;
  flush(1);
  for (const std::uint32_t kind : kinds) disable(kind);
}

void settle() {
  const auto limit = steady_clock::now() + std::chrono::seconds(20);
  while (steady_clock::now() < limit) {
    ArgusCuptiStatistics at{};
    if (!libraries.statistics(at)) return;
    const std::uint64_t read = at.records + at.dropped_cupti + at.dropped_buffers + at.dropped_invalid;
    if (read + window_kernels >= libraries.counts().kept && at.sent + at.dropped_socket >= at.records) return;
    libraries.control("argus_cupti_flush");
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void stopped() {
  const auto limit = steady_clock::now() + std::chrono::seconds(20);
  ArgusCuptiStatistics at{};
  while (libraries.statistics(at) && at.collecting && steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(10));
}

void replay(const std::string& path) {
  const recording::Recording recorded = recording::read(path, now_ticks() - 1'000'000'000);
  auto* set_size = Libraries::symbol<fake::SetSize>(libraries.cupti, "fake_set_size");
  auto* hand_over = Libraries::symbol<fake::Replay>(libraries.cupti, "fake_replay");
  if (!set_size || !hand_over) return;
  for (const auto& [kind, size] : recorded.sizes) set_size(kind, size);
  for (const recording::Buffer& buffer : recorded.buffers)
    if (!hand_over(buffer.bytes.data(), buffer.bytes.size())) std::fprintf(stderr, "a recorded buffer was refused\n");
  settle();  // the names are in `recorded`
}

int run_child(const std::function<void()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    child();
    _exit(99);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

void again(const std::string& action) {
  execl("/proc/self/exe", "training_app", action.c_str(), static_cast<char*>(nullptr));
}

void note_signals() {
  for (int attempt = 0; attempt < 200 && blocked_signals.empty(); ++attempt) {
    DIR* tasks = opendir("/proc/self/task");
    while (const dirent* task = tasks ? readdir(tasks) : nullptr) {
      const std::string folder = std::string("/proc/self/task/") + task->d_name;
      std::string name;
      std::getline(std::ifstream(folder + "/comm") >> std::ws, name);
      if (name != "argus-cupti") continue;
      std::ifstream status(folder + "/status");
      for (std::string line; std::getline(status, line);)
        if (line.rfind("SigBlk:", 0) == 0) blocked_signals = line.substr(8);
    }
    if (tasks) closedir(tasks);
    std::this_thread::sleep_for(milliseconds(5));
  }
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

void perform(const std::string& word) {
  const std::size_t colon = word.find(':');
  const std::string action = word.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : word.substr(colon + 1);
  const auto arguments = split(rest, ':');
  const auto number = [&arguments](std::size_t at) {
    return at < arguments.size() ? std::strtoull(arguments[at].c_str(), nullptr, 10) : 0ULL;
  };
  const std::map<std::string, std::function<void()>> actions = {
      {"kernels",
       [&] {
         const auto parts = split(rest, '@');
         kernels(number(0), parts.size() > 1 ? std::atof(parts[1].c_str()) : 0.0, false);
       }},
      {"stopped", [] { stopped(); }},
      {"minutes", [&] { past_kernels(number(0), number(1)); }},
      {"late", [&] { kernels(number(0), 0.0, true); }},
      {"threads", [&] { threads(number(0), number(1)); }},
      {"set", [&] { set(number(0), number(1)); }},
      {"graph", [&] { graph(number(0), number(1)); }},
      {"invalid", [&] { odd_kernels(number(0), false); }},
      {"unfinished", [&] { odd_kernels(number(0), true); }},
      {"steal", [] { profiler_window(); }},
      {"window",
       [] {
         libraries.control("argus_cupti_pause");
         profiler_window();
         libraries.rearm(0);
       }},
      {"pause", [] { libraries.control("argus_cupti_pause"); }},
      {"rearm", [] { libraries.rearm(0); }},
      {"silent", [] { libraries.rearm(1); }},
      {"flush", [] { libraries.control("argus_cupti_flush"); }},
      {"settle", [] { settle(); }},
      {"map",
       [&] {
         if (!dlopen(rest.c_str(), RTLD_NOW)) std::fprintf(stderr, "%s\n", dlerror());
       }},
      {"replay", [&] { replay(rest); }},
      {"fork",
       [] {
         child_status = run_child([] {
           ArgusCuptiStatistics at{};
           const bool silent = !libraries.statistics(at) && libraries.control("argus_cupti_flush") == ARGUS_NOT_ACTIVE;
           std::exit(silent ? 0 : 3);
         });
       }},
      {"linger",
       [&] {
         if (fork() == 0) {
           for (const int stream : {0, 1, 2}) close(stream);
           std::this_thread::sleep_for(milliseconds(number(0)));
           _exit(0);
         }
       }},
      {"spawn", [&] { child_status = run_child([&] { again(rest); }); }},
      {"exec", [&] { again(rest); }},
      {"adopt",
       [&] {
         auto* adopt =
             Libraries::symbol<int (*)(int, int, int, const char*)>(libraries.injector, "argus_cupti_adopt");
         adopted = adopt ? adopt(static_cast<int>(number(0)), 1, 4, "adopted") : ARGUS_NOT_ACTIVE;
         libraries.find();  // it may have loaded libcupti
       }},
      {"status", [&] { exit_status = static_cast<int>(number(0)); }},
      {"sleep", [&] { std::this_thread::sleep_for(milliseconds(number(0))); }},
      {"signals", [] { note_signals(); }},
  };
  const auto found = actions.find(action);
  if (found == actions.end()) {
    std::fprintf(stderr, "unknown action '%s'\n", word.c_str());
    std::exit(2);
  }
  found->second();
}

void report() {
  ArgusCuptiStatistics at{};
  const bool active = libraries.statistics(at);
  const fake::Counts counts = libraries.counts();
  std::printf(
      "{\"active\": %s, \"emitted\": %llu, \"kept\": %llu, \"refused\": %llu, \"launches\": %llu, "
      "\"window_kernels\": %llu, \"window_foreign\": %llu, \"forced_flushes\": %llu, \"hot_ns\": %llu, "
      "\"child_status\": %d, \"adopted\": %d, \"blocked_signals\": \"%s\", ",
      active ? "true" : "false", static_cast<unsigned long long>(emitted), static_cast<unsigned long long>(counts.kept),
      static_cast<unsigned long long>(counts.refused), static_cast<unsigned long long>(counts.launches),
      static_cast<unsigned long long>(window_kernels), static_cast<unsigned long long>(window_foreign),
      static_cast<unsigned long long>(counts.forced_flushes), static_cast<unsigned long long>(hot_ns), child_status,
      adopted, blocked_signals.c_str());
  const std::pair<const char*, std::uint64_t> fields[] = {
      {"records", at.records},
      {"sent", at.sent},
      {"dropped_socket", at.dropped_socket},
      {"dropped_cupti", at.dropped_cupti},
      {"dropped_buffers", at.dropped_buffers},
      {"dropped_invalid", at.dropped_invalid},
      {"foreign_buffers", at.foreign_buffers},
      {"replaced_buffers", at.replaced_buffers},
      {"pauses", at.pauses},
      {"rearms", at.rearms},
      {"silent_rearms", at.silent_rearms},
      {"clock_changes", at.clock_changes},
      {"connects", at.connects},
      {"names", at.names},
      {"cpu_ns", at.cpu_ns},
      {"free_buffers", at.free_buffers},
      {"cupti_version", at.cupti_version},
      {"collecting", at.collecting},
      {"up", at.up},
  };
  for (const auto& [name, value] : fields) std::printf("\"%s\": %llu, ", name, static_cast<unsigned long long>(value));
  std::printf("\"reason\": \"%s\"}\n", at.reason);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  long_name = "kernel_" + std::string(600, 'x') + "_end";
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  auto* initialise = Libraries::symbol<int (*)(unsigned)>(cuda, "cuInit");
  if (!initialise) {
    std::fprintf(stderr, "no libcuda.so.1: %s\n", dlerror());
    return 2;
  }
  initialise(0);
  libraries.find();
  for (int at = 1; at < count; ++at) perform(words[at]);
  report();
  return exit_status;
}
