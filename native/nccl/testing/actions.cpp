#include "actions.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "../page.hpp"
#include "counted.hpp"

namespace counted {
thread_local bool counting = false;
std::uint64_t allocations = 0;
std::uint64_t locks = 0;
}  // namespace counted

namespace {

constexpr std::size_t kElements = 1024;  // of float32: 4 KiB
/// Never destroyed: threads may use them while the process ends.
const auto& kFunctions = *new std::vector<std::string>{"AllReduce", "AllGather", "ReduceScatter"};

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Of this thread: what other processes take of the core is not counted.
std::uint64_t cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

long resident_kibibytes() {
  long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

std::uint64_t percentile(std::vector<std::uint64_t>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// As the producer makes it.
int make_page() {
  const char* chosen = std::getenv("FAKE_PAGE");
  if (chosen && std::strcmp(chosen, "none") == 0) return -1;
  const int fd = memfd_create("argus-nccl-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(argus::page::kSize)) != 0) std::exit(5);
  if (!(chosen && std::strcmp(chosen, "unsealed") == 0)) fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  const int pid = chosen && std::strcmp(chosen, "foreign") == 0 ? 1 : getpid();
  setenv("ARGUS_NCCL_PAGE", (std::to_string(pid) + ":" + std::to_string(fd)).c_str(), 1);
  return fd;
}

}  // namespace

Program::Program(int version, const char* library) : host_(version, library), page_(make_page()) {
  communicators_.reserve(1024);
}

void Program::init(long count) {
  for (long at = 0; at < count; ++at) {
    fake::Communicator communicator;
    communicator.hash = 0x1000 + communicators_.size();
    communicator.rank = 2;
    const std::string name = "comm " + std::to_string(communicators_.size());
    communicators_.push_back(communicator);
    host_.init(communicators_.back(), communicators_.size() % 2 ? name.c_str() : nullptr, 8);
  }
}

void Program::drain() {
  std::thread([this] {
    for (const fake::NetworkOperation& operation : queue_) host_.progress(operation, slow_);
  }).join();
  queue_.clear();
}

void Program::train(long rounds, long channels) {
  for (long round = 0; round < rounds; ++round) {
    for (fake::Communicator& communicator : communicators_) {
      host_.collectives(communicator, kFunctions, kElements, static_cast<int>(channels), queue_);
      host_.group(communicator, {{"Send", 3}}, kElements, static_cast<int>(channels), queue_);
      host_.group(communicator, {{"Recv", 1}}, kElements, static_cast<int>(channels), queue_);
      ++collectives_;
    }
    drain();
  }
}

/// Each call in a group of its own, as bench/gpu_day/nccl_ranks.py has it, over two channels.
void Program::calls(long rounds) {
  for (long round = 0; round < rounds; ++round)
    for (const fake::Call& call : std::vector<fake::Call>{
             {"AllReduce"}, {"AllReduce"}, {"AllGather"}, {"ReduceScatter"}, {"Send", 3}, {"Recv", 1}})
      host_.group(communicators_[0], {call}, kElements, 2, queue_);
  drain();
}

/// What a real NCCL called, on one thread. A line of FAKE_EVENTS (tests/native/test_nccl_recorded.py) is CALL EVENT
/// PARENT COMMUNICATOR TYPE STATE FUNCTION SEQUENCE COUNT PEER STEP; call s, r or e: start, record, stop; peer -1: none.
void Program::replay() {
  const char* path = std::getenv("FAKE_EVENTS");
  std::ifstream file(path ? path : "");
  std::map<std::uint64_t, void*> handles{{0, nullptr}};
  char call = 0;
  std::uint64_t event = 0, parent = 0, hash = 0, type = 0, sequence = 0, count = 0;
  int state = 0, step = 0;
  fake::Call what;
  while (file >> call >> event >> parent >> hash >> type >> state >> what.function >> sequence >> count >> what.peer >>
         step) {
    if (call == 'r') host_.record(handles.at(event), state, 0, false);
    if (call == 'e') host_.stop(handles.at(event));
    if (call != 's') continue;
    fake::Communicator& communicator = of_hash(hash);
    void* const above = handles.at(parent);
    fake::Bytes bytes = host_.descriptor(type, above, 0);
    if (type == 0x2 || type == 0x4)
      bytes = host_.task_descriptor(communicator, what, count, sequence, above, nullptr);
    else if (type == 0x200 || type == 0x400)
      bytes = host_.api_descriptor(what, count, above);
    else if (type == 0x8)
      bytes = host_.operation_descriptor({&communicator, above, 0, what.peer, false, 0}, getpid());
    else if (type == 0x10)
      bytes = host_.step_descriptor(above, step);
    handles[event] = host_.start(communicator.context, bytes);
  }
}

fake::Communicator& Program::of_hash(std::uint64_t hash) {
  for (fake::Communicator& one : communicators_)
    if (one.hash == hash) return one;
  communicators_.emplace_back();
  communicators_.back().hash = hash;
  host_.init(communicators_.back(), nullptr, 2);
  return communicators_.back();
}

/// Eight steps are posted at once and go on together.
void Program::pipeline(long microseconds) {
  std::vector<fake::NetworkOperation> queue;
  host_.collectives(communicators_[0], {"AllReduce"}, kElements, 1, queue);
  fake::NetworkOperation send = queue[0];
  void* operation = host_.start(send.communicator->context, host_.operation_descriptor(send, getpid()));
  std::vector<void*> steps;
  for (int step = 0; step < 8; ++step) {
    steps.push_back(host_.start(send.communicator->context, host_.step_descriptor(operation, step)));
    host_.record(steps.back(), 8, 0, false);
  }
  usleep(static_cast<useconds_t>(microseconds));
  for (void* step : steps) host_.record(step, 9, 4096);
  for (void* step : steps) host_.stop(step);
  host_.stop(operation);
}

/// Steps of four channels each way, posted up to eight ahead, go on as it comes; they stay where they are then. Says
/// of how many channels the oldest step is in each state, by looking at all steps.
void Program::ahead(long moves) {
  constexpr int kStates[2][3] = {{8, 20, 9}, {10, 11, 12}};
  struct Step {
    int number;
    int state;  // -1: started, and not accepted yet
    void* handle;
  };
  struct Channel {
    fake::NetworkOperation what;
    void* operation;
    int next = 0;
    std::vector<Step> open;
  };
  std::mt19937_64 random(static_cast<std::uint64_t>(moves));
  std::vector<fake::NetworkOperation> queue;
  host_.collectives(communicators_[0], {"AllReduce"}, kElements, 4, queue);
  std::vector<Channel> channels;
  for (const fake::NetworkOperation& what : queue)
    channels.push_back({what, host_.start(what.communicator->context, host_.operation_descriptor(what, getpid())), 0, {}});
  for (long move = 0; move < moves; ++move) {
    Channel& channel = channels[random() % channels.size()];
    const auto start = [&](int number) {
      return host_.start(channel.what.communicator->context, host_.step_descriptor(channel.operation, number));
    };
    if (channel.open.empty() || (channel.next - channel.open.front().number < 8 && random() % 2)) {
      channel.open.push_back({channel.next, -1, start(channel.next)});
      ++channel.next;
      continue;
    }
    const std::size_t at = random() % channel.open.size();
    Step& step = channel.open[at];
    if (step.state < 0 && random() % 2) {
      step.handle = start(step.number);  // tried once more
    } else if (step.state < 2) {
      ++step.state;
      for (int attempt = 0; attempt < 2; ++attempt)
        host_.record(step.handle, kStates[channel.what.send ? 0 : 1][step.state], 4096);
    } else {
      host_.stop(step.handle);
      channel.open.erase(channel.open.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  int oldest[6] = {};
  for (const Channel& channel : channels) {
    const auto waits = [](const Step& step) { return step.state >= 0; };
    const auto first = std::find_if(channel.open.begin(), channel.open.end(), waits);
    if (first != channel.open.end()) ++oldest[first->state + (channel.what.send ? 0 : 3)];
  }
  extra_ += ", \"oldest\": [";
  for (int state = 0; state < 6; ++state) extra_ += (state ? ", " : "") + std::to_string(oldest[state]);
  extra_ += "]";
}

/// Handles, contexts, types and states that no NCCL has.
void Program::garbage(long calls) {
  std::mt19937_64 random(7);
  const auto pointer = [&]() -> void* {
    switch (random() % 4) {
      case 0:
        return nullptr;
      case 1:
        return communicators_.empty() ? nullptr : communicators_[random() % communicators_.size()].context;
      default:
        return reinterpret_cast<void*>(random());
    }
  };
  for (long call = 0; call < calls; ++call) {
    // Types whose arms hold no names, as those are to be read: the rest of the bits is as it comes.
    const std::uint64_t type = random() % 3 ? std::uint64_t{1} << (random() % 20 + 3) : random() & ~std::uint64_t{0x606};
    fake::Bytes bytes = host_.descriptor(host_.version() >= 5 ? type & ~std::uint64_t{0x600} : type & 0xf8, pointer(), 0);
    for (std::size_t at = 24; at < 48; ++at) bytes[at] = static_cast<unsigned char>(random());
    void* handle = host_.start(pointer(), bytes);
    if (random() % 2) handle = pointer();
    host_.record(handle, static_cast<int>(random() % 64) - 8, random());
    host_.stop(handle);
    host_.stop(handle);
  }
}

/// PXN: the owner of the network card is called with the context and parents of another process.
void Program::foreign() {
  fake::Communicator other = communicators_[0];
  void* const parent = reinterpret_cast<void*>(0x7f0012345678ULL);
  fake::NetworkOperation operation{&communicators_[0], parent, 0, 3, true, 1};
  host_.stop(host_.start(communicators_[0].context, host_.operation_descriptor(operation, getpid() + 1)));
  other.context = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(other.context) ^ (std::uintptr_t{1} << 60U));
  operation.communicator = &other;
  void* handle = host_.start(other.context, host_.operation_descriptor(operation, getpid()));
  host_.step(handle, operation, 0, slow_);
  host_.stop(handle);
}

/// Everything once more after its stop, and after finalize.
void Program::late() {
  fake::Communicator& communicator = communicators_[0];
  std::vector<fake::NetworkOperation> queue;
  host_.collectives(communicator, {"AllReduce"}, kElements, 1, queue);
  fake::NetworkOperation operation = queue[0];
  void* handle = host_.start(communicator.context, host_.operation_descriptor(operation, getpid()));
  void* step = host_.start(communicator.context, host_.step_descriptor(handle, 0));
  host_.stop(handle);
  host_.record(step, 9, 4096);
  host_.stop(step);
  host_.stop(handle);
  host_.record(operation.parent, 22, 5);
  host_.stop(operation.parent);
  void* const context = communicator.context;
  host_.finalize(communicator);
  host_.record(operation.parent, 22, 5);
  host_.stop(operation.parent);
  fake::Communicator gone = communicator;
  gone.context = context;
  host_.collectives(gone, {"AllReduce"}, kElements, 1, queue);
}

/// CollNet: operations start and never stop.
void Program::unstopped(long count) {
  std::vector<fake::NetworkOperation> queue;
  for (long at = 0; at < count; ++at) {
    fake::NetworkOperation operation{&communicators_[0], nullptr, 0, 3, false, 1};
    host_.start(communicators_[0].context, host_.operation_descriptor(operation, getpid()));
  }
}

/// The first communicator is aborted while a receive waits; another takes its place in a full table, and waits as well.
/// Then the receive of the first ends after all.
void Program::aborted() {
  const auto receive = [this](fake::Communicator& communicator, void*& step) {
    std::vector<fake::NetworkOperation> queue;
    host_.collectives(communicator, {"AllReduce"}, kElements, 1, queue);
    void* const operation = host_.start(communicator.context, host_.operation_descriptor(queue[1], getpid()));
    step = host_.start(communicator.context, host_.step_descriptor(operation, 0));
    host_.record(step, 10, 0, false);
    return operation;
  };
  void* late = nullptr;
  void* waits = nullptr;
  void* const operation = receive(communicators_[0], late);
  host_.finalize(communicators_[0]);
  init(1);
  receive(communicators_.back(), waits);
  host_.record(late, 11, 4096);
  host_.record(late, 12, 0, false);
  host_.stop(late);
  host_.stop(operation);
}

/// A group of more calls than the ring of events holds, on the thread of the next ones, which come 0.2 s later.
void Program::aged() {
  fake::Communicator& communicator = communicators_[0];
  const fake::Call call{"AllReduce"};
  void* const group = host_.start(communicator.context, host_.descriptor(0x100, nullptr, 0));
  for (int at = 0; at < 17'000; ++at)
    host_.stop(host_.start(communicator.context, host_.api_descriptor(call, kElements, group)));
  host_.stop(group);
  usleep(200'000);
  train(1, 0);
}

/// Sends that the receiver gives no credit for, and receives that nothing comes for; then nothing more.
void Program::hang(long channels) {
  std::vector<fake::NetworkOperation> queue;
  host_.collectives(communicators_[0], {"AllReduce"}, kElements, static_cast<int>(channels), queue);
  for (const fake::NetworkOperation& operation : queue) {
    void* handle = host_.start(operation.communicator->context, host_.operation_descriptor(operation, getpid()));
    void* step = host_.start(operation.communicator->context, host_.step_descriptor(handle, 0));
    host_.record(step, operation.send ? 8 : 10, 0, false);
    if (operation.send) host_.record(step, 20, 0, false);
  }
  dump();
  std::printf("hangs %d\n", page_);
  std::fflush(stdout);
  char word = 0;
  while (read(STDIN_FILENO, &word, 1) > 0) {
  }
}

void Program::fork_and_call() {
  const pid_t child = fork();
  if (child == 0) {
    train(10, 1);
    for (fake::Communicator& communicator : communicators_) host_.finalize(communicator);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  extra_ += ", \"child_status\": " + std::to_string(status);
}

/// Threads that call and threads that make progress, for so long, with communicators that come and go.
void Program::threads(long milliseconds) {
  const std::uint64_t until = now_ns() + static_cast<std::uint64_t>(milliseconds) * 1'000'000U;
  std::atomic<long> rounds{0};
  std::vector<std::thread> running;
  for (int thread = 0; thread < 3; ++thread)
    running.emplace_back([this, until, thread, &rounds] {
      while (now_ns() < until) {
        fake::Communicator own;
        own.hash = 0x9000U + static_cast<std::uint64_t>(thread);
        own.rank = 2;
        host_.init(own, "short-lived", 8);
        for (int round = 0; round < 20; ++round) {
          std::vector<fake::NetworkOperation> queue;
          host_.collectives(own, kFunctions, kElements, 2, queue);
          std::thread([this, &queue] {
            for (const fake::NetworkOperation& operation : queue) host_.progress(operation, {});
          }).join();
          rounds.fetch_add(1);
        }
        host_.finalize(own);
      }
    });
  for (std::thread& thread : running) thread.join();
  extra_ += ", \"rounds\": " + std::to_string(rounds.load());
}

/// CPU time of callbacks by batches, and what they allocate and lock; after the tables have been gone through once.
void Program::bench(long batches) {
  constexpr int kSteps = 16;
  constexpr int kCalls = kSteps * 5;
  std::vector<fake::NetworkOperation> queue;
  const auto samples = static_cast<std::size_t>(batches);
  std::vector<std::uint64_t> step_ns(samples), call_ns(samples);  // resident from the start: no growth of the library's
  for (int warm = 0; warm < 40'000; ++warm) host_.collectives(communicators_[0], {"AllReduce"}, kElements, 0, queue);
  const std::uint64_t allocations = counted::allocations, locks = counted::locks;
  const long resident = resident_kibibytes();
  std::uint64_t clock_ns = now_ns();
  for (int read = 0; read < 1000; ++read) now_ns();
  clock_ns = (now_ns() - clock_ns) / 1000;
  for (std::size_t batch = 0; batch < samples; ++batch) {
    const std::uint64_t before_calls = cpu_ns();
    for (int call = 0; call < 4; ++call) host_.collectives(communicators_[0], {"AllReduce"}, kElements, 0, queue);
    call_ns[batch] = (cpu_ns() - before_calls) / 4;
    queue.clear();  // of a collective that the ring of events still has
    host_.collectives(communicators_[0], {"AllReduce"}, kElements, 1, queue);
    const fake::NetworkOperation& send = queue[0];
    void* operation = host_.start(send.communicator->context, host_.operation_descriptor(send, getpid()));
    const std::uint64_t before = cpu_ns();
    host_.bench_steps(send.communicator->context, operation, kSteps);
    step_ns[batch] = (cpu_ns() - before) / kCalls;
    host_.stop(operation);
  }
  const long grown = resident_kibibytes() - resident;
  char text[512];
  std::snprintf(text, sizeof text,
                ", \"callbacks\": %ld, \"step_ns_p50\": %lu, \"step_ns_p99\": %lu, \"collective_ns_p50\": %lu, "
                "\"collective_ns_p99\": %lu, \"clock_ns\": %lu, \"allocations\": %lu, \"locks\": %lu, \"grown_kib\": %ld",
                batches * kCalls, percentile(step_ns, 0.5), percentile(step_ns, 0.99), percentile(call_ns, 0.5),
                percentile(call_ns, 0.99), clock_ns, counted::allocations - allocations, counted::locks - locks, grown);
  extra_ += text;
}

bool Program::act(const std::string& action, long first, long second) {
  if (action == "init") init(first);
  else if (action == "train") train(first, second);
  else if (action == "calls") calls(first);
  else if (action == "replay") replay();
  else if (action == "attempts") host_.attempts = static_cast<int>(first);
  else if (action == "slow") slow_ = {static_cast<int>(first), second};
  else if (action == "pipeline") pipeline(first);
  else if (action == "ahead") ahead(first);
  else if (action == "garbage") garbage(first);
  else if (action == "foreign") foreign();
  else if (action == "late") late();
  else if (action == "unstopped") unstopped(first);
  else if (action == "abort") aborted();
  else if (action == "aged") aged();
  else if (action == "hang") hang(first);
  else if (action == "fork") fork_and_call();
  else if (action == "threads") threads(first);
  else if (action == "bench") bench(first);
  else if (action == "watch") host_.watch(first != 0);
  else if (action == "finalize") for (fake::Communicator& one : communicators_) host_.finalize(one);
  else if (action == "end") host_.finalize(communicators_[static_cast<std::size_t>(first)]);
  else if (action == "reload") { host_.unload(); host_.load(); }
  else return false;
  return true;
}

void Program::dump() const {
  const char* path = std::getenv("FAKE_PAGE_DUMP");
  if (!path || page_ < 0) return;
  std::vector<char> bytes(argus::page::kSize);
  const ssize_t got = pread(page_, bytes.data(), bytes.size(), 0);
  if (std::FILE* file = std::fopen(path, "wb")) {
    std::fwrite(bytes.data(), 1, static_cast<std::size_t>(std::max<ssize_t>(got, 0)), file);
    std::fclose(file);
  }
}

void Program::report() const {
  dump();
  std::printf("{\"mask\": %d, \"groups\": %ld%s}\n", host_.mask(), collectives_, extra_.c_str());
}
