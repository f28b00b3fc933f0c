#include "observer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sizes.hpp"

namespace argus::nccl {
namespace {

/// When the calls of the group that this thread is in began; 0: it is in none. Of the static block: the first use of
/// any other would allocate.
__attribute__((tls_model("initial-exec"))) thread_local std::uint64_t called_ns = 0;

constexpr std::uint32_t kStarted = 1;
constexpr std::uint32_t kFirstState = 2;
constexpr std::uint32_t kSendStates = 3;  ///< of page::Peer's states; those of a receive follow

/// Index in page::Peer of a state of NCCL's; negative: it is none of a step.
int step_state(int state) noexcept {
  switch (state) {
    case kSendGpuWait:
      return 0;
    case kSendPeerWait:
      return 1;
    case kSendWait:
      return 2;
    case kRecvWait:
      return 3;
    case kRecvFlushWait:
      return 4;
    case kRecvGpuWait:
      return 5;
    default:
      return -1;
  }
}

std::uint32_t bit_of(std::uint64_t type) noexcept { return static_cast<std::uint32_t>(__builtin_ctzll(type)); }

bool older(const Operation::Step& step, const Operation::Step& other) noexcept {
  return static_cast<std::int32_t>(load(step.number) - load(other.number)) < 0;
}

}  // namespace

void Observer::begin(const Memory& memory, std::uint16_t tag) noexcept {
  memory_ = memory;
  launches_.ring().shows(memory.communicators);
  tag_ = tag;
  pid_ = getpid();
}

Communicator* Observer::claim() noexcept {
  for (const std::uint32_t free : {0U, page::kFinalized}) {  // one that is gone is shown as long as there is room
    for (;;) {
      Communicator* best = nullptr;
      for (Communicator& one : communicators_)
        if (__atomic_load_n(&one.state, __ATOMIC_ACQUIRE) == free && (!best || load(one.ended) < load(best->ended)))
          best = &one;
      if (!best) break;
      std::uint32_t expected = free;  // another thread may have it by now
      if (__atomic_compare_exchange_n(&best->state, &expected, Communicator::kClaimed, false, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED))
        return best;
    }
  }
  return nullptr;
}

Communicator* Observer::open(const char* name, std::uint64_t hash, int nodes, int ranks, int rank) noexcept {
  Communicator* const communicator = claim();
  if (!communicator) {
    add(header().dropped_communicators, std::uint64_t{1});
    return nullptr;
  }
  const std::uint32_t index = index_of(*communicator);
  page::Communicator& shown = memory_.communicators[index];
  add(communicator->generation, 1U);  // first: operations of the one before count nothing here from now on
  store(shown.identity.state, 0U);
  std::memset(&shown.operations, 0, sizeof shown.operations);
  shown.kernels = {};
  std::memset(&shown.peers, 0, sizeof shown.peers);
  const std::uint32_t generation = shown.identity.generation + 1;
  shown.identity = {};
  shown.identity.hash = hash;
  shown.identity.rank = rank;
  shown.identity.ranks = ranks;
  shown.identity.nodes = nodes;
  shown.identity.generation = generation;
  if (name) std::strncpy(shown.identity.name, name, sizeof shown.identity.name - 1);
  communicator->page = &shown;
  communicator->theirs = nullptr;
  communicator->chained = false;
  __atomic_store_n(&shown.identity.state, page::kLive, __ATOMIC_RELEASE);
  __atomic_store_n(&communicator->state, page::kLive, __ATOMIC_RELEASE);
  std::uint32_t most = load(header().communicators);
  while (most < index + 1 && !__atomic_compare_exchange_n(&header().communicators, &most, index + 1, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return communicator;
}

void Observer::close(Communicator& communicator) noexcept {
  store(communicator.page->identity.state, page::kFinalized);
  store(communicator.ended, add(ended_, std::uint64_t{1}));
  __atomic_store_n(&communicator.state, page::kFinalized, __ATOMIC_RELEASE);
}

void* Observer::context_of(const Communicator& communicator) const noexcept {
  return Handle(tag_, Kind::kPlain, load(communicator.generation), index_of(communicator)).pointer();
}

Communicator* Observer::communicator(const void* context) noexcept {
  const Handle handle(context);
  if (handle.tag() != tag_ || handle.kind() != Kind::kPlain || handle.index() >= page::kCommunicators) return nullptr;
  Communicator& communicator = communicators_[handle.index()];
  const bool same = load(communicator.generation) % Handle::kGenerations == handle.generation();
  return same && __atomic_load_n(&communicator.state, __ATOMIC_ACQUIRE) == page::kLive ? &communicator : nullptr;
}

void* Observer::start(Communicator& communicator, const Event& event, bool keep) noexcept {
  const std::uint64_t now = now_ns();
  launches_.start(event, index_of(communicator), load(communicator.page->identity.generation));
  switch (event.type) {
    case kProxyOp:
      return start_operation(communicator, event, now);
    case kColl:
    case kP2p:
      enter(communicator, event, now);
      keep = true;
      break;
    case kCollApi:
    case kP2pApi:
      if (!called_ns) called_ns = now;
      add(communicator.page->operations[event.function].called, std::uint64_t{1});
      break;
    case kGroupApi:
      if (!called_ns) called_ns = now;
      break;
    case kProxyCtrl:
      store(communicator.page->identity.progress_ns, now);
      break;
    default:
      if (event.type == 0 || event.type & (event.type - 1) || event.type > kKernelPhase) {
        add(header().unknown_events, std::uint64_t{1});
        return nullptr;
      }
  }
  if (!keep) {
    const std::uint32_t index = index_of(communicator) << 8U | bit_of(event.type);
    return Handle(tag_, Kind::kPlain, load(communicator.generation), index).pointer();
  }
  std::uint32_t index = 0;
  Slot& slot = ring_.claim(index);
  store(slot.communicator, index_of(communicator));
  store(slot.communicator_generation, load(communicator.generation));
  store(slot.function, event.function);
  store(slot.type, event.type);
  store(slot.sequence, event.sequence);
  store(slot.start_ns, now);
  store(slot.finish_ns, std::uint64_t{0});
  store(slot.outstanding, 0U);
  store(slot.wanted, false);
  store(slot.theirs, static_cast<void*>(nullptr));
  index |= bit_of(event.type) * Ring::kSlots;
  return Handle(tag_, Kind::kEvent, load(slot.generation), index).pointer();
}

void Observer::enter(Communicator& communicator, const Event& event, std::uint64_t now) noexcept {
  page::Communicator& shown = *communicator.page;
  if (event.hash && !load(shown.identity.hash)) {  // versions 1 to 3 say it here only
    store(shown.identity.hash, event.hash);
    store(shown.identity.rank, static_cast<std::int32_t>(event.rank));
    if (event.name) std::strncpy(shown.identity.name, event.name, sizeof shown.identity.name - 1);
  }
  page::Operation& operation = shown.operations[event.function];
  const std::uint64_t bytes = event.bytes();
  const std::uint64_t count = add(operation.count, std::uint64_t{1}) + 1;
  add(operation.bytes, bytes);
  add(operation.by_size[size_class(bytes)], std::uint64_t{1});
  store(operation.sequence, event.type == kColl ? std::max(load(operation.sequence), event.sequence + 1) : count);
  store(operation.entered_ns, now);
}

void* Observer::start_operation(Communicator& communicator, const Event& event, std::uint64_t now) noexcept {
  if (event.operation.pid != pid_) {  // PXN: we only own the network card
    add(header().foreign_events, std::uint64_t{1});
    return nullptr;
  }
  std::uint32_t index = 0;
  bool taken_over = false;
  Operation* const operation = operations_.claim(now, index, taken_over);
  if (!operation) {
    add(header().dropped_events, std::uint64_t{1});
    return nullptr;
  }
  if (taken_over) {
    add(header().stale_events, std::uint64_t{1});
    for (Operation::Step& step : operation->steps) leave(*operation, step, now, false);
    show(*operation, Operation::kNone, now);
  }
  add(operation->generation, 1U);
  store(operation->communicator, index_of(communicator));
  store(operation->communicator_generation, load(communicator.generation));
  store(operation->last_ns, now);
  store(operation->fifo_ns, std::uint64_t{0});
  store(operation->peer, &peer(*communicator.page, event.operation.peer));
  store(operation->wanted, false);
  store(operation->theirs, static_cast<void*>(nullptr));
  for (std::uint64_t& left : operation->left_ns) store(left, now);
  Slot* const collective = slot(event.parent);
  store(operation->collective, collective ? event.parent : nullptr);
  store(operation->entered_ns, collective ? load(collective->start_ns) : std::uint64_t{0});
  store(operation->function, collective ? load(collective->function) : page::kFunctions - 1);
  if (collective)
    add(collective->outstanding, 1U);
  else if (ours(event.parent))
    add(header().stale_events, std::uint64_t{1});
  store(communicator.page->identity.progress_ns, now);
  return Handle(tag_, Kind::kOperation, load(operation->generation), index).pointer();
}

void* Observer::start_step(const void* parent, int number) noexcept {
  Operation* const found = operation(parent);
  if (!found) {
    add(header().stale_events, std::uint64_t{1});
    return nullptr;
  }
  const auto wanted = static_cast<std::uint32_t>(number);
  const std::uint32_t at = wanted % Operation::kSteps;
  Operation::Step& step = found->steps[at];
  if (!load(step.state) || load(step.number) != wanted) {  // else it is the same one, started once more
    const bool another = load(step.state) != 0;
    if (another) leave(*found, step, now_ns(), false);
    store(step.number, wanted);
    store(step.state, kStarted);
    if (another) show_oldest(*found, at, now_ns());
  }
  const Handle operation_handle(parent);
  // Whether or not the former plugin hears of this step: what is there is its handle of an earlier one.
  void*& theirs = operations_.theirs(operation_handle.index(), at);
  if (load(theirs)) store(theirs, static_cast<void*>(nullptr));
  return Handle(tag_, Kind::kStep, operation_handle.generation(), operation_handle.index() << 4U | at).pointer();
}

void Observer::record(const void* handle, int state, std::uint64_t bytes) noexcept {
  const Handle parsed(handle);
  if (parsed.tag() != tag_) return;
  if (parsed.kind() == Kind::kOperation) {
    if (Operation* const found = operation(handle)) record_operation(*found, state, now_ns());
    return;
  }
  if (parsed.kind() == Kind::kEvent && !slot(handle)) add(header().stale_events, std::uint64_t{1});
  if (parsed.kind() != Kind::kStep) return;
  const int index = step_state(state);
  Operation* const found = operations_.find(parsed.index() >> 4U, parsed.generation(), Handle::kGenerations);
  if (!found || index < 0) {
    if (!found) add(header().stale_events, std::uint64_t{1});
    return;
  }
  Operation::Step& step = found->steps[parsed.index() % Operation::kSteps];
  const std::uint32_t entered = kFirstState + static_cast<std::uint32_t>(index);
  if (!load(step.state) || load(step.state) == entered) return;  // stopped, or once more the same: each try says so
  const std::uint64_t now = now_ns();
  leave(*found, step, now, true);
  store(step.since_ns, now);
  store(step.state, entered);
  show_oldest(*found, parsed.index() % Operation::kSteps, now);
  page::Peer* const to = peer_of(*found);
  if (!to) return;
  add_alone(to->open[index], 1U);
  if (bytes && state == kSendWait) add_alone(to->sent_bytes, bytes);
  if (bytes && state == kRecvFlushWait) add_alone(to->received_bytes, bytes);
}

void Observer::record_operation(Operation& operation, int state, std::uint64_t now) noexcept {
  store(operation.last_ns, now);
  if (state == kSendRemFifoWait) {
    if (!load(operation.fifo_ns)) store(operation.fifo_ns, now);
  } else if (state == kSendTransmitted && load(operation.fifo_ns)) {
    if (page::Peer* const to = peer_of(operation)) {
      add_alone(to->ns[1], now - load(operation.fifo_ns));
      add_alone(to->steps[1], std::uint64_t{1});
    }
    store(operation.fifo_ns, std::uint64_t{0});
  }
}

/// The step leaves its state. Steps are posted up to eight ahead, so what counts is the time in which it was the
/// oldest one in that state: since it entered it, or since the one before it left.
void Observer::leave(Operation& operation, Operation::Step& step, std::uint64_t now, bool counts) noexcept {
  store(operation.last_ns, now);
  const std::uint32_t state = load(step.state);
  if (state < kFirstState) return;
  const std::uint32_t index = state - kFirstState;
  const std::uint64_t from = std::max(load(step.since_ns), load(operation.left_ns[index]));
  if (page::Peer* const to = peer_of(operation)) {
    if (load(to->open[index])) add_alone(to->open[index], ~0U);
    if (counts && now > from) add_alone(to->ns[index], now - from);
    if (counts) add_alone(to->steps[index], std::uint64_t{1});
    store(to->last_ns, now);
  }
  store(operation.left_ns[index], now);
  store(step.state, 0U);
}

/// A step has changed: which one is the oldest now? Steps are posted and done in the order of their numbers.
void Observer::show_oldest(Operation& operation, std::uint32_t at, std::uint64_t now) noexcept {
  const Operation::Step& changed = operation.steps[at];
  const bool waits = load(changed.state) >= kFirstState;
  std::uint32_t oldest = load(operation.oldest);
  if (waits) {
    if (oldest == Operation::kNone || older(changed, operation.steps[oldest])) oldest = at;
    if (oldest == at) show(operation, at, now);
    return;
  }
  if (oldest != at) return;
  const std::uint32_t next = (at + 1) % Operation::kSteps;
  if (load(operation.steps[next].state) >= kFirstState && older(changed, operation.steps[next])) {
    show(operation, next, now);
    return;
  }
  oldest = Operation::kNone;
  for (std::uint32_t other = 0; other < Operation::kSteps; ++other) {
    const Operation::Step& step = operation.steps[other];
    if (load(step.state) < kFirstState) continue;
    if (oldest == Operation::kNone || older(step, operation.steps[oldest])) oldest = other;
  }
  show(operation, oldest, now);
}

/// The page counts, by state, channels whose oldest step is in it.
void Observer::show(Operation& operation, std::uint32_t oldest, std::uint64_t now) noexcept {
  const std::uint32_t before = load(operation.shown);
  const std::uint32_t state = oldest == Operation::kNone ? 0 : load(operation.steps[oldest].state);
  store(operation.oldest, oldest);
  store(operation.shown, state);
  page::Peer* const there = peer_of(operation);
  if (!there) return;
  page::Peer& to = *there;
  if (before && load(to.oldest[before - kFirstState]))
    add_alone(to.oldest[before - kFirstState], std::uint16_t{0xffff});
  if (!state) return;
  add_alone(to.oldest[state - kFirstState], std::uint16_t{1});
  const std::size_t receives = state - kFirstState >= kSendStates;
  store(to.oldest_moved_ns[receives], now);
  const std::uint64_t entered = load(operation.entered_ns);
  if (load(to.oldest_entered_ns[receives]) == entered) return;
  store(to.oldest_entered_ns[receives], entered);
  store(to.oldest_function[receives], static_cast<std::uint8_t>(load(operation.function)));
}

void Observer::stop(const void* handle) noexcept {
  const Handle parsed(handle);
  if (parsed.tag() != tag_) return;
  switch (parsed.kind()) {
    case Kind::kStep: {
      Operation* const found = operations_.find(parsed.index() >> 4U, parsed.generation(), Handle::kGenerations);
      if (!found) {
        add(header().stale_events, std::uint64_t{1});
        return;
      }
      Operation::Step& step = found->steps[parsed.index() % Operation::kSteps];
      const std::uint64_t now = now_ns();
      leave(*found, step, now, true);
      store(step.state, 0U);
      show_oldest(*found, parsed.index() % Operation::kSteps, now);
      return;
    }
    case Kind::kOperation:
      if (Operation* const found = operation(handle))
        stop_operation(*found, now_ns());
      else
        add(header().stale_events, std::uint64_t{1});
      return;
    case Kind::kEvent: {
      const std::uint64_t type = std::uint64_t{1} << (parsed.index() / Ring::kSlots & 0x3fU);
      Slot* const found = slot(handle);
      if (!found) add(header().stale_events, std::uint64_t{1});
      launches_.stop(type);
      if (found && type == kKernelLaunch) launched(load(found->communicator));
      if (type == kGroupApi) called_ns = 0;
      return;
    }
    case Kind::kPlain: {
      const std::uint64_t type = std::uint64_t{1} << (parsed.index() & 0x3fU);
      launches_.stop(type);
      if (type == kKernelLaunch) launched(parsed.index() >> 8U);
      if (type == kGroupApi) called_ns = 0;
      return;
    }
  }
}

void Observer::launched(std::uint32_t index) noexcept {
  if (index >= page::kCommunicators || __atomic_load_n(&communicators_[index].state, __ATOMIC_ACQUIRE) != page::kLive)
    return;
  if (!called_ns) return;  // called on another thread, as by communicators that do not block: no time, so not in the mean
  page::Identity& shown = communicators_[index].page->identity;
  add(shown.launches, std::uint64_t{1});
  add(shown.launch_ns, now_ns() - called_ns);
}

void Observer::stop_operation(Operation& operation, std::uint64_t now) noexcept {
  for (Operation::Step& step : operation.steps) {
    leave(operation, step, now, false);
    store(step.state, 0U);
  }
  show(operation, Operation::kNone, now);
  const std::uint32_t index = load(operation.communicator);
  if (peer_of(operation)) {
    store(communicators_[index].page->identity.progress_ns, now);
    finish_one(load(operation.collective), now);
  }
  store(operation.collective, static_cast<void*>(nullptr));
  operations_.give_back(operation);
}

void Observer::finish_one(const void* collective, std::uint64_t now) noexcept {
  Slot* const found = slot(collective);
  if (!found || load(found->outstanding) == 0 || add(found->outstanding, ~0U) != 1) return;
  page::Communicator& shown = *communicators_[load(found->communicator)].page;
  page::Operation& operation = shown.operations[load(found->function)];
  // Another operation of the same collective may start only now: its time comes on top then.
  const std::uint64_t before = load(found->finish_ns);
  add(operation.network_ns, now - (before ? before : load(found->start_ns)));
  if (!before) add(operation.network_count, std::uint64_t{1});
  store(found->finish_ns, now);
  const std::uint64_t number = load(found->type) == kColl ? load(found->sequence) + 1 : load(operation.network_count);
  store(operation.finished, std::max(load(operation.finished), number));
  store(operation.finished_ns, now);
}

Slot* Observer::slot(const void* handle) noexcept {
  const Handle parsed(handle);
  if (parsed.tag() != tag_ || parsed.kind() != Kind::kEvent) return nullptr;
  return ring_.find(parsed.index() % Ring::kSlots, parsed.generation(), Handle::kGenerations);
}

Operation* Observer::operation(const void* handle) noexcept {
  const Handle parsed(handle);
  if (parsed.tag() != tag_ || parsed.kind() != Kind::kOperation) return nullptr;
  return operations_.find(parsed.index(), parsed.generation(), Handle::kGenerations);
}

void** Observer::step_theirs(const void* handle) noexcept {
  const Handle parsed(handle);
  if (parsed.tag() != tag_ || parsed.kind() != Kind::kStep) return nullptr;
  if (!operations_.find(parsed.index() >> 4U, parsed.generation(), Handle::kGenerations)) return nullptr;
  return &operations_.theirs(parsed.index() >> 4U, parsed.index());
}

page::Peer* Observer::peer_of(const Operation& operation) const noexcept {
  const std::uint32_t generation = load(communicators_[load(operation.communicator)].generation);
  return generation == load(operation.communicator_generation) ? load(operation.peer) : nullptr;
}

page::Peer& Observer::peer(page::Communicator& page, int rank) noexcept {
  const std::uint32_t key = rank < 0 ? page::kOtherPeers : static_cast<std::uint32_t>(rank) + 1;
  for (std::uint32_t at = 0; at + 1 < page::kPeers; ++at) {
    std::uint32_t seen = load(page.peers[at].key);
    if (seen == key) return page.peers[at];
    if (seen == 0 && key != page::kOtherPeers &&
        (__atomic_compare_exchange_n(&page.peers[at].key, &seen, key, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
         seen == key))
      return page.peers[at];
  }
  page::Peer& others = page.peers[page::kPeers - 1];
  store(others.key, page::kOtherPeers);
  return others;
}

std::uint32_t Observer::index_of(const Communicator& communicator) const noexcept {
  return static_cast<std::uint32_t>(&communicator - communicators_);
}

}  // namespace argus::nccl
