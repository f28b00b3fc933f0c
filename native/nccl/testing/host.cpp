#include "host.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "counted.hpp"

namespace fake {
namespace {

using Logger = void (*)(int, unsigned long, const char*, int, const char*, ...);

constexpr std::uint64_t kGroup = 0x1, kColl = 0x2, kP2p = 0x4, kProxyOp = 0x8, kProxyStep = 0x10, kKernelCh = 0x40,
                        kNet = 0x80, kGroupApi = 0x100, kCollApi = 0x200, kP2pApi = 0x400, kKernelLaunch = 0x800;

constexpr std::size_t kElementBytes = 4;

Layout layout_of(int version) {
  switch (version) {
    case 1:
      return {120, 24, 32, 40, 48, 72, 84, -1, 32, 40, 56, 64, 72, -1};
    case 2:
      return {128, 24, 32, 40, 48, 72, 88, -1, 32, 40, 56, 64, 72, -1};
    case 3:
      return {120, 24, 32, 40, 48, 72, 88, -1, 32, 40, 56, 64, 72, -1};
    case 4:
      return {104, -1, -1, 24, 32, 56, 72, -1, -1, 24, 40, 48, 56, -1};
    case 7:
      return {136, -1, -1, 24, 32, 56, 72, 104, -1, 24, 40, 48, 56, 64};
    default:
      return {112, -1, -1, 24, 32, 56, 72, 104, -1, 24, 40, 48, 56, 64};
  }
}

const char* const kCodes[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
                              "Send",      "Recv"};

int code(const std::string& function) {
  for (int at = 0; at < 8; ++at)
    if (function == kCodes[at]) return at;
  return 99;
}

Logger logger() {
  const char* library = std::getenv("FAKE_NCCL_LIBRARY");
  void* opened = library ? dlopen(library, RTLD_NOW) : RTLD_DEFAULT;
  return reinterpret_cast<Logger>(dlsym(opened, "fake_nccl_log"));
}

}  // namespace

Host::Host(int version, const char* library) : version_(version), path_(library), layout_(layout_of(version)) {
  load();
}

void Host::load() {
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string symbol = "ncclProfiler_v" + std::to_string(version_);
  table_ = library_ ? static_cast<void* const*>(dlsym(library_, symbol.c_str())) : nullptr;
  if (table_) return;
  std::fprintf(stderr, "fake NCCL: %s: %s\n", path_.c_str(), dlerror());
  std::exit(3);
}

void Host::unload() { dlclose(library_); }

void Host::watch(bool on) { reinterpret_cast<void (*)(int)>(dlsym(library_, "argus_nccl_watch"))(on); }

template <class T>
void Host::put(Bytes& bytes, int at, T value) {
  if (at >= 0) std::memcpy(bytes.data() + at, &value, sizeof value);
}

Bytes Host::descriptor(std::uint64_t type, void* parent, int rank) const {
  Bytes bytes(layout_.size, 0xee);  // what NCCL leaves unset is whatever was there
  if (version_ >= 5)
    put(bytes, 0, type);
  else
    put(bytes, 0, static_cast<std::uint8_t>(type));
  put(bytes, 8, parent);
  put(bytes, 16, rank);
  return bytes;
}

Bytes Host::operation_descriptor(const NetworkOperation& operation, int pid) const {
  Bytes bytes = descriptor(kProxyOp, operation.parent, operation.communicator->rank);
  put(bytes, 24, pid);
  put(bytes, 28, static_cast<std::uint8_t>(operation.channel));
  put(bytes, 32, operation.peer);
  put(bytes, 36, operation.steps);
  put(bytes, 40, 1 << 19);
  put(bytes, 44, static_cast<int>(operation.send));
  return bytes;
}

Bytes Host::step_descriptor(void* parent, int number) const {
  Bytes bytes = descriptor(kProxyStep, parent, 0);
  put(bytes, 24, number);
  return bytes;
}

void* Host::start(void* context, Bytes bytes) {
  void* handle = reinterpret_cast<void*>(0xdeadbeefdeadbeefULL);  // some callers do not initialise it
  reinterpret_cast<int (*)(void*, void**, void*)>(table_[2])(context, &handle, bytes.data());
  return handle;
}

void Host::stop(void* handle) {
  if (handle) reinterpret_cast<int (*)(void*)>(table_[3])(handle);
}

void Host::record(void* handle, int state, std::uint64_t argument, bool with_argument) {
  std::uint64_t arguments[2] = {argument, 0};
  if (handle) reinterpret_cast<int (*)(void*, int, void*)>(table_[4])(handle, state, with_argument ? arguments : nullptr);
}

void Host::init(Communicator& communicator, const char* name, int ranks) {
  // NCCL keeps the caller's pointer, which may die: so it does here.
  char* given = name ? strdup(name) : nullptr;
  int answer = 0;
  int* mask = &mask_;
  if (version_ <= 3)
    answer = reinterpret_cast<int (*)(void**, int*)>(table_[1])(&communicator.context, mask);
  else if (version_ == 4)
    answer = reinterpret_cast<int (*)(void**, int*, const char*, std::uint64_t, int, int, int, Logger)>(table_[1])(
        &communicator.context, mask, given, communicator.hash, 1, ranks, communicator.rank, logger());
  else
    answer = reinterpret_cast<int (*)(void**, std::uint64_t, int*, const char*, int, int, int, Logger)>(table_[1])(
        &communicator.context, communicator.hash, mask, given, 1, ranks, communicator.rank, logger());
  if (given) {
    std::memset(given, 'x', std::strlen(given));
    std::free(given);
  }
  if (answer == 0) return;
  std::fprintf(stderr, "fake NCCL: init answered %d\n", answer);
  std::exit(4);
}

void Host::finalize(Communicator& communicator) {
  if (communicator.context) reinterpret_cast<int (*)(void*)>(table_[5])(communicator.context);
  communicator.context = nullptr;
}

/// An event is sent also where only what lies below it is asked for.
bool Host::sends(std::uint64_t type) const {
  const auto asked = static_cast<std::uint64_t>(mask());
  const std::uint64_t below = kProxyOp | kProxyStep | kKernelCh | kNet;
  if (type == kColl || type == kP2p) return asked & (type | below);
  if (type == kGroup) return asked & (kGroup | kColl | kP2p | below);
  if (type == kProxyOp) return asked & (kProxyOp | kProxyStep | kNet);
  if (type == kProxyStep) return asked & (kProxyStep | kNet);
  if (type == kCollApi) return version_ >= 5 && asked & (type | kColl | below);
  if (type == kP2pApi) return version_ >= 5 && asked & (type | kP2p | below);
  if (type == kGroupApi) return version_ >= 5 && asked;
  if (type == kKernelLaunch) return version_ >= 5 && asked & kKernelLaunch;
  return asked & type;
}

/// Where NCCL hands an operation over, all-gathers and broadcasts are of bytes.
Bytes Host::task_descriptor(const Communicator& communicator, const Call& call, std::size_t count,
                            std::uint64_t sequence, void* above, void* group) const {
  const bool in_bytes = call.function == "AllGather" || call.function == "Broadcast";
  const char* const datatype = in_bytes ? "ncclInt8" : "ncclFloat32";
  const std::uint8_t datatype_code = in_bytes ? 0 : 7;
  const bool transfer = call.peer >= 0;
  Bytes bytes = descriptor(transfer ? kP2p : kColl, above, communicator.rank);
  put(bytes, transfer ? layout_.p2p_hash : layout_.coll_hash, communicator.hash);
  put(bytes, transfer ? layout_.p2p_count : layout_.coll_count, count);
  put(bytes, transfer ? layout_.p2p_parent : layout_.coll_parent, group);
  const int function_at = transfer ? layout_.p2p_func : layout_.coll_func;
  const int datatype_at = transfer ? layout_.p2p_datatype : layout_.coll_datatype;
  if (version_ == 1) {
    put(bytes, function_at, static_cast<std::uint8_t>(code(call.function)));
    put(bytes, datatype_at, datatype_code);
  } else {
    put(bytes, function_at, call.function.c_str());
    put(bytes, datatype_at, datatype);
  }
  if (transfer) {
    if (version_ <= 3) put(bytes, 24, static_cast<const char*>(nullptr));
    put(bytes, layout_.p2p_peer, call.peer);
    return bytes;
  }
  put(bytes, layout_.coll_name, static_cast<const char*>("named in the event"));
  put(bytes, layout_.coll_seq, sequence);
  if (version_ >= 2) {  // algorithm and protocol, the last two pointers before the parent
    const int algorithm = version_ == 2 ? 112 : version_ == 3 ? 104 : 88;
    put(bytes, algorithm, "RING");
    put(bytes, algorithm + 8, "SIMPLE");
  }
  return bytes;
}

Bytes Host::api_descriptor(const Call& call, std::size_t count, void* group_api) const {
  Bytes bytes = descriptor(call.peer >= 0 ? kP2pApi : kCollApi, group_api, 0);
  put(bytes, 24, call.function.c_str());
  put(bytes, 32, count);
  put(bytes, 40, "ncclFloat32");
  return bytes;
}

void Host::group(Communicator& communicator, const std::vector<Call>& calls, std::size_t count, int channels,
                 std::vector<NetworkOperation>& queue) {
  void* const context = communicator.context;
  void* group_api = nullptr;
  if (sends(kGroupApi)) {
    Bytes bytes = descriptor(kGroupApi, nullptr, 0);
    put(bytes, 24, false);
    put(bytes, 28, 1);
    group_api = start(context, bytes);
    record(group_api, 23, 0, false);
  }
  std::vector<void*> called;
  for (const Call& call : calls) {
    const bool told = sends(call.peer >= 0 ? kP2pApi : kCollApi);
    called.push_back(told ? start(context, api_descriptor(call, count, group_api)) : nullptr);
    stop(called.back());
  }
  record(group_api, 24, 0, false);
  void* const launch = sends(kKernelLaunch) ? start(context, descriptor(kKernelLaunch, group_api, 0)) : nullptr;
  if (launches) launches(communicator, calls);
  stop(launch);
  void* const group = sends(kGroup) ? start(context, descriptor(kGroup, nullptr, 0)) : nullptr;
  std::vector<void*> running;
  for (std::size_t at = 0; at < calls.size(); ++at) {
    const Call& call = calls[at];
    const bool transfer = call.peer >= 0;
    if (!sends(transfer ? kP2p : kColl)) continue;
    const std::size_t told = call.function == "AllGather" ? count * kElementBytes : count;
    const std::uint64_t sequence = transfer ? 0 : communicator.sequence[call.function]++;
    void* const above = version_ >= 5 ? called[at] : group;
    running.push_back(start(context, task_descriptor(communicator, call, told, sequence, above, group)));
    if (transfer && channels) {
      queue.push_back({&communicator, running.back(), 0, call.peer, call.function == "Send", 1});
      continue;
    }
    for (int channel = 0; channel < channels; ++channel)
      for (const bool send : {true, false})
        queue.push_back({&communicator, running.back(), channel, send ? communicator.rank + 1 : communicator.rank + 7,
                         send, 4});
  }
  for (void* one : running) stop(one);
  stop(group);
  stop(group_api);
}

void Host::collectives(Communicator& communicator, const std::vector<std::string>& functions, std::size_t count,
                       int channels, std::vector<NetworkOperation>& queue) {
  std::vector<Call> calls;
  for (const std::string& function : functions) calls.push_back({function, -1});
  group(communicator, calls, count, channels, queue);
}

void Host::step(void* operation, const NetworkOperation& what, int number, const Slow& slow) {
  void* const context = what.communicator->context;
  const auto stay = [&](int state) {
    if (slow.state == state) usleep(static_cast<useconds_t>(slow.microseconds));
  };
  void* handle = nullptr;
  if (what.send) {
    handle = start(context, step_descriptor(operation, number));
    record(handle, 8, 0, false);
    stay(8);
    for (int attempt = 0; attempt < attempts && version_ >= 4; ++attempt) record(handle, 20, 0, false);
    if (version_ >= 4) stay(20);
    record(handle, 9, 4096);
    stay(9);
  } else {
    for (int attempt = 0; attempt < attempts; ++attempt) handle = start(context, step_descriptor(operation, number));
    record(handle, 10, 0, false);
    stay(10);
    record(handle, 11, 4096);
    stay(11);
    record(handle, 12, 0, false);
    stay(12);
  }
  stop(handle);
}

void Host::bench_steps(void* context, void* operation, int steps) {
  auto* begin = reinterpret_cast<int (*)(void*, void**, void*)>(table_[2]);
  auto* end = reinterpret_cast<int (*)(void*)>(table_[3]);
  auto* state = reinterpret_cast<int (*)(void*, int, void*)>(table_[4]);
  unsigned char bytes[136] = {};
  std::uint64_t argument = 4096;
  bytes[0] = static_cast<unsigned char>(kProxyStep);
  std::memcpy(bytes + 8, &operation, sizeof operation);
  counted::counting = true;
  for (int number = 0; number < steps; ++number) {
    std::memcpy(bytes + 24, &number, sizeof number);
    void* handle = nullptr;
    begin(context, &handle, bytes);
    state(handle, 8, nullptr);
    state(handle, 20, nullptr);
    state(handle, 9, &argument);
    end(handle);
  }
  counted::counting = false;
}

void Host::progress(const NetworkOperation& what, const Slow& slow) {
  if (!sends(kProxyOp)) return;
  void* operation = start(what.communicator->context, operation_descriptor(what, getpid()));
  if (version_ >= 4) record(operation, 19, 0, false);
  for (int number = 0; number < what.steps && sends(kProxyStep); ++number) step(operation, what, number, slow);
  if (version_ <= 3 && what.send) {
    record(operation, 1, 4096);
    if (slow.state == 1) usleep(static_cast<useconds_t>(slow.microseconds));
    record(operation, 2, 4096);
  }
  stop(operation);
}

}  // namespace fake
