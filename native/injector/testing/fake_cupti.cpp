// Stand-in for libcupti: the v1 Activity API as far as the injector uses it, with what is known of its manners.
//
// FAKE_CUPTI_VERSION   API number; decides the sizes of records (130001)
// FAKE_CUPTI_ENABLE    result of cuptiActivityEnable (0)
// FAKE_CUPTI_CLOCK     offset in ns, and rate, of CUPTI's clock against CLOCK_REALTIME ("0 1.0"); a third number
//                      delays the change by so many ms after the start
// FAKE_CUPTI_FLUSH_MS  how long a flush that is not forced takes (0)
// FAKE_CUPTI_FORCED_MS how long a forced flush takes (0)
// FAKE_CUPTI_THREADS   "system": records of calls have the system's number of the thread, not that of pthread_self
// FAKE_CUPTI_LOG       file that notes calls which tests ask about, one a line
//
// Reproduced: one buffer a thread from 13.0 on, one for all before; a crash where a version before 12.9 gets no
// buffer; callbacks are the process's, the last registration wins; a flush that is not forced leaves records
// that have not ended; the rules of cuptiActivityEnableRuntimeApi; a crash where the process comes to CUDA's teardown
// (here: the destructor of this library) while a thread is within a flush, or enters one later.

#include "fake_cupti.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace {

using Request = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Complete = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

constexpr std::uint32_t kMemcpy = 1, kMemset = 2, kDriver = 4, kRuntime = 5, kKernel = 10;

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
};

struct Calls {  // of one API domain
  bool kind = false;
  bool was_switched_off = false;  // then the switches of single calls say nothing until the kind is on again
  std::set<std::uint32_t> on;
  std::set<std::uint32_t> off;

  bool records(std::uint32_t call) const {
    if (kind) return off.count(call) == 0;
    return !was_switched_off && on.count(call) != 0;
  }
};

struct State {
  std::mutex mutex;
  Request request = nullptr;
  Complete complete = nullptr;
  std::set<std::uint32_t> kinds;
  Calls calls[2];  // driver, runtime
  std::vector<std::unique_ptr<Buffer>> buffers;  // one a thread; the first is everybody's before 13.0
  std::map<std::uint32_t, std::size_t> sizes;
  std::uint64_t dropped = 0;
  fake::Counts counts;
};

State& state() {
  static State* const instance = new State;  // outlives every thread
  return *instance;
}

std::uint32_t version() {
  static const std::uint32_t number = [] {
    const char* text = std::getenv("FAKE_CUPTI_VERSION");
    return text ? static_cast<std::uint32_t>(std::atoi(text)) : 130001U;
  }();
  return number;
}

std::size_t size_of(std::uint32_t kind) {
  const auto& sizes = state().sizes;
  const auto told = sizes.find(kind);
  if (told != sizes.end()) return told->second;
  const std::uint32_t number = version();
  switch (kind) {
    case kKernel:
    case 3:
      return number < 130000 ? 208 : number < 130100 ? 216 : number < 130300 ? 224 : number < 130400 ? 232 : 248;
    case kMemcpy:
      return number < 27 ? 88 : number < 130400 ? 96 : 112;
    case kMemset:
      return number < 130400 ? 88 : 104;
    case kDriver:
    case kRuntime:
      return 40;
    default:
      return 0;
  }
}

void note(const char* what, unsigned number) {
  static const char* const path = std::getenv("FAKE_CUPTI_LOG");
  if (!path) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s %u\n", what, number);
    std::fclose(file);
  }
}

std::uint64_t realtime() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t ticks() {
  static const std::uint64_t begin = realtime();
  static const auto clock = [] {
    struct Clock {
      long long offset = 0;
      double rate = 1.0;
      long long after_ms = 0;
    } parsed;
    if (const char* text = std::getenv("FAKE_CUPTI_CLOCK"))
      std::sscanf(text, "%lld %lf %lld", &parsed.offset, &parsed.rate, &parsed.after_ms);
    return parsed;
  }();
  const std::uint64_t now = realtime();
  if (now - begin < static_cast<std::uint64_t>(clock.after_ms) * 1'000'000U) return now;
  const double since = static_cast<double>(now - begin) * clock.rate;
  return begin + static_cast<std::uint64_t>(clock.offset) + static_cast<std::uint64_t>(since);
}

bool is_ours(std::uint32_t kind) { return kind == kKernel || kind == 3 || kind == kMemcpy || kind == kMemset; }

Buffer& buffer_of_thread(State& self) {
  thread_local Buffer* mine = nullptr;
  if (version() < 130000) {
    if (self.buffers.empty()) self.buffers.push_back(std::make_unique<Buffer>());
    return *self.buffers.front();
  }
  if (!mine) {
    self.buffers.push_back(std::make_unique<Buffer>());
    mine = self.buffers.back().get();
  }
  return *mine;
}

void hand_over(Buffer& buffer, State& self) {
  const Buffer full = buffer;
  buffer = {};
  if (full.data) self.complete(nullptr, 0, full.data, full.size, full.used);
}

/// Room for a record, or null where the client gave no buffer.
std::uint8_t* room(State& self, std::size_t size) {
  Buffer& buffer = buffer_of_thread(self);
  if (buffer.data && buffer.used + size > buffer.size) hand_over(buffer, self);
  if (!buffer.data) {
    std::size_t most = 0;
    self.request(&buffer.data, &buffer.size, &most);
    buffer.used = 0;
    if (!buffer.data) {
      if (version() < 27) std::abort();  // CUPTI before 12.9 dereferences it
      return nullptr;
    }
  }
  std::uint8_t* at = buffer.data + buffer.used;
  buffer.used += size;
  return at;
}

template <class T>
void put(std::uint8_t* record, std::size_t offset, T value) {
  std::memcpy(record + offset, &value, sizeof value);
}

/// Of the calling thread, as a record has it: the lower half.
std::uint32_t thread_number() {
  static const bool by_system = [] {
    const char* text = std::getenv("FAKE_CUPTI_THREADS");
    return text && std::strcmp(text, "system") == 0;
  }();
  if (by_system) return static_cast<std::uint32_t>(syscall(SYS_gettid));
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pthread_self()));
}

std::atomic<int> flushes{0};
std::atomic<bool> torn_down{false};

struct Flush {
  Flush() {
    ++flushes;
    if (torn_down) std::abort();
  }
  ~Flush() { --flushes; }
};

[[gnu::destructor]] void tear_down() {
  torn_down = true;
  if (flushes != 0) std::abort();
}

/// Whether every record of a buffer has ended: others stay with CUPTI unless it is forced.
bool ended(const Buffer& buffer) {
  for (std::size_t at = 0; at < buffer.used;) {
    std::uint32_t kind = 0;
    std::uint64_t end = 0;
    std::memcpy(&kind, buffer.data + at, sizeof kind);
    std::memcpy(&end, buffer.data + at + 24, sizeof end);
    if (is_ours(kind) && end == 0) return false;
    const std::size_t size = size_of(kind);
    if (size == 0) return true;
    at += size;
  }
  return true;
}

}  // namespace

extern "C" {

int cuptiGetVersion(std::uint32_t* number) {
  *number = version();
  return 0;
}

int cuptiGetTimestamp(std::uint64_t* time) {
  *time = ticks();
  return 0;
}

int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  self.request = request;
  self.complete = complete;
  ++self.counts.registrations;
  note("register", 0);
  return 0;
}

int cuptiActivityEnable(std::uint32_t kind) {
  static const char* const result = std::getenv("FAKE_CUPTI_ENABLE");
  if (result) return std::atoi(result);
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  if (kind == kDriver || kind == kRuntime) {
    self.calls[kind - kDriver] = Calls{};
    self.calls[kind - kDriver].kind = true;
  }
  self.kinds.insert(kind);
  note("enable", kind);
  return 0;
}

int cuptiActivityDisable(std::uint32_t kind) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  if (kind == kDriver || kind == kRuntime) {
    self.calls[kind - kDriver] = Calls{};
    self.calls[kind - kDriver].was_switched_off = true;
  }
  self.kinds.erase(kind);
  note("disable", kind);
  return 0;
}

int cuptiActivityEnableDriverApi(std::uint32_t call, std::uint8_t on) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  (on ? self.calls[0].on : self.calls[0].off).insert(call);
  (on ? self.calls[0].off : self.calls[0].on).erase(call);
  return 0;
}

int cuptiActivityEnableRuntimeApi(std::uint32_t call, std::uint8_t on) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  (on ? self.calls[1].on : self.calls[1].off).insert(call);
  (on ? self.calls[1].off : self.calls[1].on).erase(call);
  return 0;
}

int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  std::uint8_t* at = buffer;
  if (*record) {
    std::uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    at = static_cast<std::uint8_t*>(*record) + size_of(kind);
  }
  if (at >= buffer + valid) return 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED
  *record = at;
  return 0;
}

int cuptiActivityFlushAll(std::uint32_t forced) {
  State& self = state();
  const Flush flush;
  static const char* const slow = std::getenv("FAKE_CUPTI_FLUSH_MS");
  static const char* const slow_if_forced = std::getenv("FAKE_CUPTI_FORCED_MS");
  if (const char* text = forced ? slow_if_forced : slow) usleep(static_cast<useconds_t>(std::atoi(text)) * 1000U);
  const std::lock_guard<std::mutex> lock(self.mutex);
  if (forced) {
    ++self.counts.forced_flushes;
    note("forced_flush", forced);
  }
  for (auto& buffer : self.buffers)
    if (buffer->data && (forced || ended(*buffer))) hand_over(*buffer, self);
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  *dropped = self.dropped;
  self.dropped = 0;
  return 0;
}

int cuptiFinalize() {
  note("finalize", 0);
  return 0;
}

void fake_emit(const fake::Activity* activity) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  const std::uint32_t kind = activity->kind;
  const bool call = kind == kDriver || kind == kRuntime;
  if (!self.request) return;
  if (call ? !self.calls[kind - kDriver].records(activity->call) : self.kinds.count(kind) == 0) return;
  if (!call) ++self.counts.kept;
  std::uint8_t* record = room(self, size_of(kind));
  if (!record) {
    ++self.dropped;  // of any kind, as CUPTI counts them
    if (!call) ++self.counts.refused;
    return;
  }
  std::memset(record, 0xAB, size_of(kind));
  put(record, 0, kind);
  if (call) {
    ++self.counts.launches;
    put(record, 4, activity->call);
    put(record, 8, activity->start);
    put(record, 16, activity->end);
    put(record, 28, thread_number());
    put(record, 32, activity->correlation);
    return;
  }
  put(record, 16, activity->start);
  put(record, 24, activity->end);
  if (kind == kKernel) {
    put(record, 40, activity->device);
    put(record, 48, activity->stream);
    put(record, 92, activity->correlation);
    put(record, 104, activity->name);
    put(record, 156, activity->graph);
    return;
  }
  put(record, 8, activity->bytes);
  put(record, 32, activity->device);
  put(record, 40, activity->stream);
  put(record, 44, activity->correlation);
  if (kind == kMemcpy) {
    put(record, 4, std::uint8_t{1});  // host to device
    put(record, 5, std::uint8_t{2});  // from pinned memory
    put(record, 6, std::uint8_t{3});
  } else {
    put(record, 4, activity->value);
    put(record, 50, std::uint16_t{3});  // device memory
  }
}

void fake_counts(fake::Counts* out) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  *out = self.counts;
}

void fake_set_size(std::uint32_t kind, std::size_t size) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  self.sizes[kind] = size;
}

bool fake_replay(const std::uint8_t* bytes, std::size_t size) {
  State& self = state();
  const std::lock_guard<std::mutex> lock(self.mutex);
  if (!self.request) return false;
  Buffer buffer;
  std::size_t most = 0;
  self.request(&buffer.data, &buffer.size, &most);
  if (!buffer.data || buffer.size < size) return false;
  std::memcpy(buffer.data, bytes, size);
  for (std::size_t at = 0; at < size;) {
    std::uint32_t kind = 0;
    std::memcpy(&kind, bytes + at, sizeof kind);
    if (size_of(kind) == 0) return false;
    self.counts.kept += is_ours(kind);
    at += size_of(kind);
  }
  self.complete(nullptr, 0, buffer.data, buffer.size, size);
  return true;
}

}  // extern "C"
