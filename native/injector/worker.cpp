#include "worker.hpp"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "launch_windows.hpp"

namespace argus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kShortestPeriod{20};
constexpr milliseconds kPatience{100};      // of one send, while buffers are plenty: a reader that pauses loses nothing
constexpr milliseconds kLastPatience{500};  // of one send at exit; all of them end by the deadline that `finish` sets
constexpr seconds kStatePeriod{5};          // own cost and drops stay current within this
constexpr seconds kIdlePeriod{5};           // where nothing can be collected
constexpr std::uint64_t kInvalidLimit = 64;
constexpr std::int64_t kClockStepNs = 1'000'000'000;  // of the host's clock, between two ticks
constexpr seconds kCuptiLimit{10};  // of one call at exit: a launcher's patience (torchrun: 30 s) is longer

std::uint64_t nanoseconds(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Changes where the host's clock is set, or the host sleeps.
std::int64_t clock_offset_ns() noexcept {
  return static_cast<std::int64_t>(nanoseconds(CLOCK_REALTIME) - nanoseconds(CLOCK_MONOTONIC));
}

}  // namespace

Worker::Worker(const Settings& settings, const Identity& identity, Cupti* cupti, BufferPool& pool,
               Collection& collection, const std::atomic<const nccl::LaunchRing*>& nccl)
    : settings_(settings),
      period_(std::max(milliseconds(settings.flush_milliseconds), kShortestPeriod)),
      cupti_(cupti),
      pool_(pool),
      collection_(collection),
      nccl_(nccl),
      link_(socket_path(settings), identity, names_) {
  if (!cupti) return;
  clock_ = std::make_unique<Clock>(*cupti);
  judged_offset_ns_ = clock_offset_ns();
  decoder_ = std::make_unique<Decoder>(*cupti, *clock_, names_, link_, settings);
  const bool always = settings.issue_latency == LaunchTimes::kAlways;
  decoder_->expect_launches(always);
  if (always) calls_ = LaunchCalls::kAll;
  if (!settings.record.empty())
    recorder_ = std::make_unique<Recorder>(settings.record, identity.rank,
                                           static_cast<std::size_t>(settings.record_mebibytes) << 20U, *cupti);
}

void Worker::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Worker::run() noexcept {
  pthread_setname_np(pthread_self(), "argus-cupti");
  try {
    loop();
  } catch (...) {
    // Memory is short. The training may still go on; we do not: CUPTI gets no more buffers read.
    collection_.stop("out_of_memory");
    link_.close();
  }
  publish_counters();
  const std::lock_guard<std::mutex> lock(done_mutex_);
  done_ = true;
  in_cupti_ = false;
  done_changed_.notify_all();
}

void Worker::loop() {
  auto next_tick = steady_clock::now();
  while (!stop_) {
    const auto buffer = pool_.take(std::min(next_tick, turn_launches()));
    if (buffer && enter_cupti()) {  // its records are read by CUPTI, and point to names in loaded modules
      read(*buffer);
      overrun(false);
      leave_cupti();
    }
    const auto now = steady_clock::now();
    if (now < next_tick && !tick_now_) continue;
    tick_now_ = false;
    tick(false);
    next_tick = steady_clock::now() + (collection_.may_flush() ? period_ : std::min<milliseconds>(period_ * 5, kIdlePeriod));
  }
  tick(true);
  link_.close();
  recorder_.reset();
}

steady_clock::time_point Worker::turn_launches() {
  if (!cupti_) return steady_clock::time_point::max();
  const nccl::LaunchRing* const nccl = nccl_.load(std::memory_order_acquire);
  const bool launches = nccl && nccl->watched();
  const bool sampled = settings_.issue_latency == LaunchTimes::kSampled;
  const std::uint64_t now = unix_now();
  const bool all = sampled ? LaunchWindows::open(now) : settings_.issue_latency == LaunchTimes::kAlways;
  const LaunchCalls wanted = all ? LaunchCalls::kAll : launches ? LaunchCalls::kOfNccl : LaunchCalls::kNone;
  if (wanted != calls_ && enter_cupti()) {
    collection_.record(wanted);
    decoder_->expect_launches(all);
    calls_ = wanted;
    leave_cupti();
  }
  if (!sampled) return steady_clock::time_point::max();
  return steady_clock::now() + std::chrono::nanoseconds(LaunchWindows::until_change(now));
}

void Worker::read(const BufferPool::Filled& buffer) {
  if (const nccl::LaunchRing* const nccl = nccl_.load(std::memory_order_acquire)) decoder_->join(*nccl);
  if (buffer.discard) {
    dropped_buffers_ += decoder_->count(buffer.data, buffer.valid);
  } else {
    if (!stop_) link_.set_patience(pool_.at_ease() ? kPatience : milliseconds{0});
    if (recorder_) recorder_->buffer(buffer.data, buffer.valid);
    decoder_->buffer(buffer.data, buffer.valid);
  }
  pool_.give_back(buffer);
}

void Worker::drain() {
  while (!closed())
    if (const auto buffer = pool_.take())
      read(*buffer);
    else
      return;
}

void Worker::tick(bool last) {
  if (last) link_.set_patience(kLastPatience);
  if (cupti_ && enter_cupti()) {
    fetch(last);
    leave_cupti();
  }
  link_.flush();
  publish_counters();
  say_state(last);
}

void Worker::fetch(bool last) {
  const bool ours = collection_.may_flush();
  if (ours) {
    clock_->refresh();
    if (last)
      cupti_->flush_at_exit();
    else
      cupti_->flush();
  }
  drain();
  decoder_->flushed(last);
  if (last) decoder_->flushed(last);
  if (ours) dropped_cupti_ += cupti_->take_dropped();
  overrun(true);
  judge_times();
  judge_cost();
}

bool Worker::enter_cupti() noexcept {
  const std::lock_guard<std::mutex> lock(done_mutex_);
  in_cupti_ = !closed_;
  return in_cupti_;
}

bool Worker::closed() noexcept {
  const std::lock_guard<std::mutex> lock(done_mutex_);
  return closed_;
}

void Worker::leave_cupti() noexcept {
  const std::lock_guard<std::mutex> lock(done_mutex_);
  in_cupti_ = false;
  done_changed_.notify_all();
}

void Worker::overrun(bool at_tick) {
  if (!pool_.overrun()) return;
  if (collection_.hold()) {
    publish_counters();
    say_state(true);
  }
  if (!at_tick) return;
  // What went into the void was never readable: its number is that of the smallest records that fit.
  dropped_buffers_ += pool_.take_voided_bytes() / abi::Kernel::kSmallest;
  if (pool_.recovered()) collection_.release();
}

void Worker::judge_times() {
  const std::uint64_t invalid = decoder_->invalid() - judged_invalid_;
  const std::uint64_t valid = decoder_->records() - judged_records_;
  if (valid > 0) collection_.heard();
  // Records of before a step of the host's clock are of the future after it, or long gone. It may have come after
  // this tick had read what there was: the next one is not judged either.
  const std::int64_t offset_ns = clock_offset_ns();
  if (std::abs(offset_ns - judged_offset_ns_) > kClockStepNs) unjudged_ticks_ = 2;
  judged_offset_ns_ = offset_ns;
  if (unjudged_ticks_ > 0) {
    --unjudged_ticks_;
    judged_invalid_ += invalid;
    judged_records_ += valid;
    return;
  }
  if (invalid < kInvalidLimit && valid == 0) return;  // too few to tell: they add up
  judged_invalid_ += invalid;
  judged_records_ += valid;
  if (invalid < kInvalidLimit || invalid <= valid) return;
  collection_.stop("invalid_timestamps");
  say("CUPTI's timestamps are invalid (" + std::to_string(invalid) + " of " + std::to_string(invalid + valid) +
      " records): kernels are switched off, training goes on");
}

void Worker::judge_cost() {
  if (!decoder_->too_costly() || !collection_.collecting()) return;
  collection_.stop("launch_rate");
  say("to record this many kernels slows the training by more than " + std::to_string(settings_.kernels_cost) +
      " %: kernels are switched off, training goes on (ARGUS_KERNELS_COST)");
}

void Worker::say_state(bool now) {
  const Collection::State state = collection_.state();
  const bool up = state.up();
  // A process that never ran a kernel does not train: it speaks only to say that it cannot see any.
  const bool pausing = std::strcmp(state.reason, "paused") == 0;
  if (records_ == 0 && (up || pausing)) return;
  const bool changed = up != said_up_ || said_reason_ != state.reason;
  const auto at = steady_clock::now();
  if (!now && !changed && link_.connects() == said_connects_ && at - said_at_ < kStatePeriod) return;
  wire::ChannelState record;
  record.cpu_ns = cpu_ns_;
  record.dropped = dropped_cupti_ + dropped_buffers_ + dropped_invalid_;
  record.reason_id = up ? 0 : names_.of_text(state.reason);
  record.channel = static_cast<std::uint8_t>(wire::Channel::kKernels);
  record.up = up;
  link_.send_state(record);
  if (changed && cupti_ && std::strcmp(state.reason, "no_records") == 0 && *cupti_->why_silent())
    say(std::string("no kernel records from CUPTI: ") + cupti_->why_silent());
  said_up_ = up;
  said_reason_ = state.reason;
  said_connects_ = link_.connects();
  said_at_ = at;
}

void Worker::publish_counters() noexcept {
  if (decoder_) {
    records_ = decoder_->records();
    dropped_invalid_ = decoder_->invalid();
    unlisted_ = static_cast<std::uint32_t>(decoder_->unlisted());
    clock_changes_ = clock_->changes();
  }
  name_count_ = names_.records().size();
  cpu_ns_ = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

void Worker::tick_soon() noexcept {
  tick_now_ = true;
  pool_.wake();
}

bool Worker::finish(milliseconds limit) noexcept {
  if (!thread_.joinable()) return true;
  // A reader that is stuck costs the end of the training this long, not so long for each message.
  const auto end = steady_clock::now() + limit;
  link_.wait_no_longer_than(end - limit / 4);
  stop_ = true;
  pool_.wake();
  std::unique_lock<std::mutex> lock(done_mutex_);
  const bool done = done_changed_.wait_until(lock, end, [this] { return done_; });
  closed_ = true;
  const bool outside = done_changed_.wait_until(lock, steady_clock::now() + kCuptiLimit, [this] { return !in_cupti_; });
  lock.unlock();
  if (done)
    thread_.join();
  else
    thread_.detach();
  return outside;
}

void Worker::statistics(ArgusCuptiStatistics& out) const noexcept {
  out.records = records_;
  out.sent = link_.sent();
  out.dropped_socket = link_.dropped();
  out.dropped_cupti = dropped_cupti_;
  out.dropped_buffers = dropped_buffers_;
  out.dropped_invalid = dropped_invalid_;
  out.unlisted = unlisted_;
  out.connects = link_.connects();
  out.names = name_count_;
  out.clock_changes = clock_changes_;
  out.cpu_ns = cpu_ns_;
}

}  // namespace argus
