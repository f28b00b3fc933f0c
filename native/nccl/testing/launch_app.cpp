// A training process with both libraries: the fake NCCL launches kernels of which the fake CUPTI writes records.
//
//   launch_app VERSION LIBRARY ACTION[:NUMBER[:NUMBER[:NUMBER]]]...
//
//   cuda                 brings CUDA up, which loads the injector
//   comm:HASH:RANK:SIZE  a communicator
//   ready, quiet         until CUPTI writes records of calls, until it writes none
//   watch:ON             the plugin's switch
//   train:ROUNDS         on each communicator in turn a collective, a group of three, a send with its receive, and a
//                        kernel of compiled code, which calls the driver as NCCL does
//   sends:FIRST:ROUNDS   sends with their receives on the communicators from that one on
//   peers:COUNT          on the first communicator a send to and a receive from so many peers, one launch
//   many:COUNT           on the first communicator so many collectives, one launch
//   threads:ROUNDS       as train, each communicator on a thread of its own, all at once
//   late                 from here on the record of a call comes after that of its kernel
//   soon                 from here on the records of a launch are read, and several flushes, before NCCL tells what it does
//   shared               from here on all kernels are on one stream
//   graph                a captured collective, and a replay of its kernel
//   stray                kernels of NCCL that it does not tell of: beside its launches, and within those of another thread
//   elsewhere            what a launch does is told on another thread
//   other                what a launch does is not told; the next group is another communicator's
//   fork                 a child that launches
//   flush                has the injector read and send what there is
//   read                 until the injector has read all that there is
//
// A kernel's duration says what is true of it: KIND * 10^8 + communicator * 10^6 + sequence, in ns. Kinds: 1 one
// collective, 2 several, of which the sequence is the first one's, 3 so many sends and receives, 4 the communicator at most, 9 nobody's.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "../../injector/control.h"
#include "../../injector/testing/fake_cupti.hpp"
#include "../page.hpp"
#include "counted.hpp"
#include "host.hpp"

namespace counted {  // as host.cpp wants them; nobody counts here
thread_local bool counting = false;
std::uint64_t allocations = 0;
std::uint64_t locks = 0;
}  // namespace counted

namespace {

constexpr std::uint64_t kOne = 1, kSeveral = 2, kNumberless = 3, kUntold = 4, kNobodys = 9;
constexpr std::uint32_t kDriver = 4, kRuntime = 5, kKernel = 10;
constexpr std::uint32_t kLaunchKernelEx = 652, kGraphLaunch = 311;
constexpr char kCollective[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
constexpr char kSend[] = "ncclDevKernel_SendRecv";
constexpr char kCompiled[] = "triton_poi_fused_add_0";

class Process {
 public:
  Process(int version, const char* library) : host_(version, library) {
    host_.launches = [this](fake::Communicator& communicator, const std::vector<fake::Call>& calls) {
      if (captures_) return call(next(), now(), kDriver, kLaunchKernelEx);
      if (calls[0].peer >= 0) return run(kSend, kNumberless, communicator, calls.size());
      const std::uint64_t kind = calls.size() > 1 ? kSeveral : kOne;
      run(kCollective, kind, communicator, communicator.sequence[calls[0].function]);
    };
  }

  bool act(const std::string& action, const std::vector<long>& numbers) {
    const auto number = [&numbers](std::size_t at) { return at < numbers.size() ? numbers[at] : 0; };
    if (action == "cuda") cuda();
    else if (action == "comm") open(number(0), number(1), number(2));
    else if (action == "ready") wait_for_calls(true);
    else if (action == "quiet") wait_for_calls(false);
    else if (action == "watch") host_.watch(number(0) != 0);
    else if (action == "train") for (fake::Communicator& one : communicators_) train(one, number(0));
    else if (action == "sends") sends(number(0), number(1));
    else if (action == "peers") peers(number(0));
    else if (action == "many") many(number(0));
    else if (action == "threads") threads(number(0));
    else if (action == "late") late_ = true;
    else if (action == "soon") soon_ = true;
    else if (action == "shared") shared_ = true;
    else if (action == "graph") graph();
    else if (action == "stray") stray();
    else if (action == "elsewhere") elsewhere();
    else if (action == "other") other();
    else if (action == "fork") fork_and_launch();
    else if (action == "flush") flush();
    else if (action == "read") have_all_read();
    else return false;
    return true;
  }

  void report() const {
    const char* path = std::getenv("FAKE_PAGE_DUMP");
    std::vector<char> bytes(argus::page::kSize);
    if (path && pread(page_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()))
      if (std::FILE* file = std::fopen(path, "wb")) {
        std::fwrite(bytes.data(), 1, bytes.size(), file);
        std::fclose(file);
      }
    std::printf("{\"kernels\": %ld, \"child_status\": %d, \"mask\": %d}\n", kernels_.load(), child_status_, host_.mask());
  }

 private:
  template <class Function>
  static Function symbol(void* library, const char* name) {
    return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  }

  void cuda() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (auto* initialise = symbol<int (*)(unsigned)>(library, "cuInit")) initialise(0);
    void* const cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    emit_ = symbol<fake::Emit>(cupti, "fake_emit");
    timestamp_ = symbol<int (*)(std::uint64_t*)>(cupti, "cuptiGetTimestamp");
    counts_ = symbol<fake::ReadCounts>(cupti, "fake_counts");
  }

  bool are_calls_written() const {
    fake::Counts before, after;
    counts_(&before);
    call(0, now(), kDriver, kLaunchKernelEx);
    counts_(&after);
    return after.launches > before.launches;
  }
  void wait_for_calls(bool written) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (counts_ && are_calls_written() != written && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void open(long hash, long rank, long ranks) {
    if (page_ < 0) make_page();
    fake::Communicator made;
    made.hash = static_cast<std::uint64_t>(hash);
    made.rank = static_cast<int>(rank);
    communicators_.push_back(made);
    host_.init(communicators_.back(), "", static_cast<int>(ranks));
  }

  void make_page() {
    page_ = memfd_create("argus-nccl-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (page_ < 0 || ftruncate(page_, static_cast<off_t>(argus::page::kSize)) != 0) std::exit(5);
    fcntl(page_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    setenv("ARGUS_NCCL_PAGE", (std::to_string(getpid()) + ":" + std::to_string(page_)).c_str(), 1);
  }

  std::uint64_t now() const {
    std::uint64_t ticks = 0;
    if (timestamp_) timestamp_(&ticks);
    return ticks;
  }
  std::uint32_t next() { return ++correlation_; }
  std::uint64_t index_of(const fake::Communicator& communicator) const {
    for (std::size_t at = 0; at < communicators_.size(); ++at)
      if (&communicators_[at] == &communicator) return at;
    return 0;
  }

  void emit(const fake::Activity& activity) const {
    if (emit_) emit_(&activity);
  }
  void call(std::uint32_t correlation, std::uint64_t begin, std::uint32_t kind, std::uint32_t which) const {
    fake::Activity made;
    made.kind = kind;
    made.call = which;
    made.correlation = correlation;
    made.start = begin;
    made.end = now();
    emit(made);
  }
  void kernel(const char* name, std::uint32_t correlation, std::uint64_t start, std::uint32_t stream, std::uint32_t graph,
              std::uint64_t duration) {
    fake::Activity made;
    made.kind = kKernel;
    made.name = name;
    made.correlation = correlation;
    made.stream = stream;
    made.graph = graph;
    made.start = start;
    made.end = start + duration;
    emit(made);
    kernels_.fetch_add(1);
  }

  /// A call of the driver and the kernel that it launches.
  void run(const char* name, std::uint64_t kind, const fake::Communicator& communicator, std::uint64_t sequence) {
    const std::uint64_t index = index_of(communicator), begin = now();
    const std::uint32_t correlation = next();
    const auto stream = static_cast<std::uint32_t>(shared_ ? 7 : 20 + index);
    const std::uint64_t duration = kind * 100'000'000 + index * 1'000'000 + sequence;
    if (!late_) call(correlation, begin, kDriver, kLaunchKernelEx);
    kernel(name, correlation, begin + 8'000, stream, 0, duration);
    if (late_) call(correlation, begin, kDriver, kLaunchKernelEx);
    if (soon_) have_all_read();
  }

  void train(fake::Communicator& communicator, long rounds) {
    std::vector<fake::NetworkOperation> queue;
    for (long round = 0; round < rounds; ++round) {
      host_.collectives(communicator, {"AllReduce"}, 1024, 0, queue);
      host_.collectives(communicator, {"AllGather", "ReduceScatter", "AllGather"}, 1024, 0, queue);
      exchange(communicator);
      run(kCompiled, kNobodys, communicator, 0);
    }
  }

  /// A send, whose kernel may receive too.
  void exchange(fake::Communicator& communicator) {
    std::vector<fake::NetworkOperation> queue;
    host_.group(communicator, {{"Send", 1}}, 1024, 0, queue);
  }

  /// Events that say what a launch does.
  void tell(const fake::Communicator& communicator) {
    void* const group = host_.start(communicator.context, host_.descriptor(0x1, nullptr, 0));
    const fake::Call send{"Send", 1};
    host_.stop(host_.start(communicator.context, host_.task_descriptor(communicator, send, 1024, 0, nullptr, group)));
    host_.stop(group);
  }

  void sends(long first, long rounds) {
    for (auto at = static_cast<std::size_t>(first); at < communicators_.size(); ++at)
      for (long round = 0; round < rounds; ++round) exchange(communicators_[at]);
  }

  void peers(long count) {
    std::vector<fake::Call> calls;
    for (int peer = 1; peer <= count; ++peer) {
      calls.push_back({"Send", peer});
      calls.push_back({"Recv", peer});
    }
    std::vector<fake::NetworkOperation> queue;
    host_.group(communicators_[0], calls, 1024, 0, queue);
  }

  void many(long count) {
    std::vector<fake::NetworkOperation> queue;
    host_.collectives(communicators_[0], std::vector<std::string>(static_cast<std::size_t>(count), "AllGather"), 1024, 0,
                      queue);
  }

  void threads(long rounds) {
    std::vector<std::thread> running;
    for (fake::Communicator& one : communicators_) running.emplace_back([this, &one, rounds] { train(one, rounds); });
    for (std::thread& thread : running) thread.join();
  }

  void graph() {
    std::vector<fake::NetworkOperation> queue;
    captures_ = true;
    host_.collectives(communicators_[0], {"AllReduce"}, 1024, 0, queue);
    captures_ = false;
    const std::uint32_t correlation = next();
    const std::uint64_t begin = now();
    call(correlation, begin, kRuntime, kGraphLaunch);
    kernel(kCollective, correlation, begin + 8'000, 7, 3, kNobodys * 100'000'000);
  }

  void stray() {
    run(kCollective, kNobodys, communicators_[0], 0);
    void* const launch = host_.start(communicators_[0].context, host_.descriptor(0x800, nullptr, 0));
    std::thread([this] { run(kCollective, kNobodys, communicators_[0], 0); }).join();
    host_.stop(launch);
  }

  void elsewhere() {
    fake::Communicator& communicator = communicators_[0];
    void* const launch = host_.start(communicator.context, host_.descriptor(0x800, nullptr, 0));
    run(kCollective, kUntold, communicator, 0);
    host_.stop(launch);
    std::thread([this, &communicator] { tell(communicator); }).join();
  }

  void other() {
    void* const launch = host_.start(communicators_[0].context, host_.descriptor(0x800, nullptr, 0));
    run(kCollective, kUntold, communicators_[0], 0);
    host_.stop(launch);
    tell(communicators_[1]);
  }

  void fork_and_launch() {
    const pid_t child = fork();
    if (child == 0) {
      emit_ = nullptr;
      for (fake::Communicator& one : communicators_) train(one, 2);
      _exit(0);
    }
    waitpid(child, &child_status_, 0);
  }

  static void* injector() {
    const char* path = std::getenv("CUDA_INJECTION64_PATH");
    return path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  }
  static void flush() {
    if (auto* now = symbol<int (*)()>(injector(), "argus_cupti_flush")) now();
  }
  /// All buffers given home, as Kineto does at the end of its window, and read by the injector.
  void have_all_read() const {
    auto* const home = symbol<int (*)(std::uint32_t)>(dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD), "cuptiActivityFlushAll");
    auto* const statistics = symbol<int (*)(ArgusCuptiStatistics*, std::size_t)>(injector(), "argus_cupti_statistics");
    if (!home || !statistics) std::exit(6);
    home(1);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ArgusCuptiStatistics at{};
    int flushes = 0;
    std::uint64_t cost = ~std::uint64_t{0};  // of the worker, told when a flush is over
    while (statistics(&at, sizeof at) == ARGUS_OK) {
      if (at.cpu_ns != cost && ++flushes > 3 && at.records >= static_cast<std::uint64_t>(kernels_.load())) return;
      if (at.cpu_ns != cost) flush();
      cost = at.cpu_ns;
      if (std::chrono::steady_clock::now() > limit) std::exit(7);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  fake::Host host_;
  std::deque<fake::Communicator> communicators_;
  fake::Emit emit_ = nullptr;
  int (*timestamp_)(std::uint64_t*) = nullptr;
  fake::ReadCounts counts_ = nullptr;
  std::atomic<std::uint32_t> correlation_{0};
  std::atomic<long> kernels_{0};
  int page_ = -1;
  int child_status_ = -1;
  bool late_ = false, soon_ = false, shared_ = false, captures_ = false;
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  auto& process = *new Process(std::atoi(words[1]), words[2]);  // never destroyed
  for (int at = 3; at < count; ++at) {
    const std::string word = words[at];
    std::vector<long> numbers;
    for (auto colon = word.find(':'); colon != std::string::npos; colon = word.find(':', colon + 1))
      numbers.push_back(std::strtol(word.c_str() + colon + 1, nullptr, 0));
    if (!process.act(word.substr(0, word.find(':')), numbers)) return 2;
  }
  process.report();
  return 0;
}
