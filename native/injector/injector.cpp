// The entry point: CUDA loads this library in cuInit and calls InitializeInjection on the calling thread.
// Nothing here may fail the training process: no exception leaves, and the answer is always 1.

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "buffer_pool.hpp"
#include "collection.hpp"
#include "control.h"
#include "cupti.hpp"
#include "environment.hpp"
#include "identity.hpp"
#include "nccl_launches.hpp"
#include "other_users.hpp"
#include "selection.hpp"
#include "worker.hpp"

namespace argus {
namespace {

constexpr std::chrono::milliseconds kExitLimit{2'000};

/// Everything of an observed process. Made once and never destroyed: CUPTI may call back until the very end.
struct Injector {
  explicit Injector(Settings settings_) : settings(std::move(settings_)), pid(getpid()) {}

  const Settings settings;
  const pid_t pid;
  RankClaim claim;
  std::unique_ptr<Cupti> cupti;
  std::unique_ptr<BufferPool> pool;
  std::unique_ptr<Collection> collection;
  std::unique_ptr<Worker> worker;
};

std::atomic<Injector*> injector{nullptr};
/// This process may turn out to be a rank: until it is told so, nothing else of ours is here.
std::atomic<const Settings*> waiting{nullptr};
std::atomic<bool> in_forked_child{false};
/// Where libargus_nccl writes down the launches of NCCL; null: it is not here.
std::atomic<const nccl::LaunchRing*> launches_of_nccl{nullptr};

Injector* active() noexcept {
  return in_forked_child.load(std::memory_order_relaxed) ? nullptr : injector.load(std::memory_order_acquire);
}

void on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *max_records = 0;
  if (Injector* self = active()) {
    self->pool->request(buffer, size);
  } else {  // CUDA does not work in a forked child, so nobody asks; and its lock may be held for ever
    *buffer = nullptr;
    *size = 0;
  }
}

void on_complete(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  Injector* self = active();
  if (self && buffer) self->pool->complete(buffer, valid);
}

/// Child of a fork: no thread of ours lives here, and locks may be held by threads that are not here either.
void after_fork_in_child() {
  in_forked_child = true;
  if (Injector* self = injector.load()) {
    self->worker->forked();
    self->claim.abandon();
  }
}

/// CUDA's teardown runs beside us or after us, and must not meet a thread within CUPTI: that ends in a crash, and
/// the launcher sees another exit status than the training's. Where CUPTI does not return at all, the process ends
/// here, with the status that it was ending with.
void at_exit(int status, void*) {
  Injector* self = active();
  if (!self || self->worker->finish(kExitLimit)) return;
  say("CUPTI does not return: the process ends with status " + std::to_string(status) + " without its last handlers");
  std::fflush(nullptr);
  _exit(status);
}

void skip(const Settings& settings, const std::string& why) {
  debug(settings, "kernels of process " + std::to_string(getpid()) + " are not observed: " + why);
}

/// Observes this process as a rank. False: another process is that rank. `late`: CUDA is up already.
bool observe(const Settings& settings, const Identity& identity, bool late) {
  auto self = std::make_unique<Injector>(settings);
  if (!self->claim.take(identity, socket_path(self->settings))) {
    skip(self->settings, "another process has rank " + std::to_string(identity.rank));
    return false;
  }
  std::string reason = other_user_of_cupti();
  if (reason.empty()) self->cupti = Cupti::open(self->settings, reason);
  const LaunchTimes launches = self->settings.issue_latency;
  if (self->cupti && (late || launches == LaunchTimes::kSampled)) self->cupti->context_exists();
  const auto bytes = static_cast<std::size_t>(self->settings.cupti_buffer_kibibytes) * 1024;
  self->pool = std::make_unique<BufferPool>(static_cast<std::size_t>(self->settings.cupti_buffers), bytes,
                                            !self->cupti || self->cupti->may_refuse_buffer());
  self->collection = self->cupti ? std::make_unique<Collection>(*self->cupti, *self->pool, on_request, on_complete,
                                                                launches == LaunchTimes::kAlways ? LaunchCalls::kAll
                                                                                                 : LaunchCalls::kNone)
                                 : std::make_unique<Collection>(reason.c_str());
  self->worker = std::make_unique<Worker>(self->settings, identity, self->cupti.get(), *self->pool, *self->collection,
                                          launches_of_nccl);
  Injector* const made = self.release();
  injector.store(made, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  on_exit(at_exit, nullptr);
  const bool collecting = made->collection->start();
  try {
    made->worker->start();
  } catch (...) {
    made->collection->stop("no_thread");
    throw;
  }
  if (!collecting) {
    debug(made->settings, "kernels cannot be observed: " + std::string(made->collection->state().reason));
    return true;
  }
  debug(made->settings, "kernels of rank " + std::to_string(identity.rank) + " of job " + identity.job +
                            " go to " + socket_path(made->settings));
  return true;
}

void inject(const Settings& settings) {
  const std::vector<std::string> command = command_line();
  const Identity identity = identify(settings, command);
  std::string why = reason_to_skip(settings, command);
  if (!why.empty()) return skip(settings, why);
  why = reason_to_wait(identity, command);
  if (why.empty()) {
    observe(settings, identity, false);
    return;
  }
  debug(settings, "kernels of process " + std::to_string(getpid()) + " wait for its rank: " + why);
  waiting.store(new Settings(settings), std::memory_order_release);
}

/// Another tool's injection library, which CUDA_INJECTION64_PATH has no second place for.
void chain(const std::string& path) {
  if (path.empty()) return;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* initialize = library ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
  if (initialize)
    initialize();
  else
    say("ARGUS_NEXT_INJECTION is '" + path + "'; allowed: a library with InitializeInjection; going on without it");
}

}  // namespace
}  // namespace argus

extern "C" {

int InitializeInjection(void) {
  static std::atomic<bool> called{false};
  if (called.exchange(true)) return 1;
  try {
    const argus::Settings settings = argus::read_settings();
    try {
      argus::inject(settings);
    } catch (const std::exception& error) {
      argus::say(std::string("kernels are not observed, training goes on: ") + error.what());
    }
    argus::chain(settings.next_injection);
  } catch (...) {
    // Not even memory for a message.
  }
  return 1;
}

int argus_cupti_interface(void) { return ARGUS_CUPTI_INTERFACE; }

int argus_cupti_adopt(int rank, int local_rank, int world_size, const char* job) {
  if (argus::in_forked_child || rank < 0 || !job) return ARGUS_NOT_ACTIVE;
  const std::unique_ptr<const argus::Settings> settings(argus::waiting.exchange(nullptr, std::memory_order_acquire));
  if (!settings) return ARGUS_NOT_ACTIVE;
  try {
    return argus::observe(*settings, {rank, local_rank, world_size, job}, true) ? ARGUS_OK : ARGUS_REFUSED;
  } catch (const std::exception& error) {
    argus::say(std::string("kernels are not observed, training goes on: ") + error.what());
  } catch (...) {
  }
  return ARGUS_REFUSED;
}

int argus_cupti_pause(void) {
  argus::Injector* self = argus::active();
  if (!self) return ARGUS_NOT_ACTIVE;
  const bool paused = self->collection->pause();
  self->worker->tick_soon();
  return paused ? ARGUS_OK : ARGUS_REFUSED;
}

int argus_cupti_rearm(int because_silent) {
  argus::Injector* self = argus::active();
  if (!self) return ARGUS_NOT_ACTIVE;
  // Somebody took the callbacks without a word. Whose life they are for may keep them.
  const char* other = because_silent ? argus::other_user_of_cupti() : "";
  if (*other) self->collection->stop(other);
  const bool armed = self->collection->rearm(because_silent != 0);
  self->worker->tick_soon();
  return armed ? ARGUS_OK : ARGUS_REFUSED;
}

int argus_cupti_flush(void) {
  argus::Injector* self = argus::active();
  if (!self) return ARGUS_NOT_ACTIVE;
  self->worker->tick_soon();
  return ARGUS_OK;
}

int argus_cupti_nccl_launches(const void* ring, int interface) {
  if (argus::in_forked_child || !ring) return ARGUS_NOT_ACTIVE;
  if (interface != argus::nccl::LaunchRing::kInterface) return ARGUS_REFUSED;
  argus::launches_of_nccl.store(static_cast<const argus::nccl::LaunchRing*>(ring), std::memory_order_release);
  if (argus::Injector* self = argus::active()) self->worker->tick_soon();
  return ARGUS_OK;
}

int argus_cupti_statistics(struct ArgusCuptiStatistics* out, size_t size) {
  argus::Injector* self = argus::active();
  if (!self || !out) return ARGUS_NOT_ACTIVE;
  ArgusCuptiStatistics statistics{};
  self->worker->statistics(statistics);
  statistics.foreign_buffers = self->pool->foreign();
  statistics.replaced_buffers = self->pool->replaced();
  statistics.free_buffers = self->pool->free_buffers();
  statistics.pauses = self->collection->pauses();
  statistics.rearms = self->collection->rearms();
  statistics.silent_rearms = self->collection->silent_rearms();
  statistics.cupti_version = self->cupti ? self->cupti->version() : 0;
  const argus::Collection::State state = self->collection->state();
  statistics.collecting = state.collecting;
  statistics.up = state.up();
  static_assert(sizeof statistics.reason == sizeof state.reason);
  std::memcpy(statistics.reason, state.reason, sizeof state.reason);
  std::memcpy(out, &statistics, std::min(size, sizeof statistics));
  return ARGUS_OK;
}

}  // extern "C"
