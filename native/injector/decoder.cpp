#include "decoder.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "launch_windows.hpp"

namespace argus {
namespace {

// As Kineto writes them, so that a trace of torch.profiler and ours name a copy alike.
constexpr const char* kCopies[] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                   "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
constexpr const char* kMemories[] = {"Unknown", "Pageable", "Pinned", "Device",
                                     "Array",   "Managed",  "Device Static", "Managed Static"};

constexpr std::uint64_t kOldestNs = 3'600'000'000'000;
constexpr std::uint64_t kAheadNs = 10'000'000'000;

std::uint32_t kilobytes(std::uint64_t bytes) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / 1024 + (bytes % 1024 != 0), 0xFFFFFFFFU));
}

/// The mark of a step that the producer put on its stream; 0 where a memory set is somebody else's.
std::uint16_t step_mark(std::uint32_t value, std::uint64_t bytes) noexcept {
  const bool own = bytes == wire::kStepMarkBytes && value >> 16 == wire::kStepMarkValue >> 16;
  return own && (value & wire::kStepMarks) != 0 ? static_cast<std::uint16_t>(value) : std::uint16_t{0};
}

std::uint8_t device_number(std::uint32_t device) noexcept {
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(device, 255));
}

}  // namespace

Decoder::Decoder(const Cupti& cupti, const Clock& clock, NameTable& names, Link& link, const Settings& settings)
    : cupti_(cupti),
      clock_(clock),
      names_(names),
      link_(link),
      launch_times_(settings.issue_latency),
      with_launches_(launch_times_ != LaunchTimes::kNever),
      with_graph_launches_(launch_times_ == LaunchTimes::kAlways || cupti.graph_launches_survive_switching()),
      budget_(settings.kernels_cost, launch_times_) {}

void Decoder::buffer(std::uint8_t* data, std::size_t valid) {
  names_.new_buffer();
  const std::uint64_t now = unix_now();
  earliest_ns_ = now - kOldestNs;
  latest_ns_ = now + kAheadNs;
  for (void* record = nullptr; (record = cupti_.next(data, valid, record));) {
    switch (abi::read<std::uint32_t>(record, 0)) {
      case abi::kKindConcurrentKernel:
      case abi::kKindKernel:
        kernel(record);
        break;
      case abi::kKindMemcpy:
        copy(record);
        break;
      case abi::kKindMemset:
        set(record);
        break;
      case abi::kKindRuntime:
        call(record, false);
        break;
      case abi::kKindDriver:
        call(record, true);
        break;
      default:
        break;  // another tool may switch on kinds of its own while the callbacks are ours
    }
  }
}

std::size_t Decoder::count(std::uint8_t* data, std::size_t valid) const noexcept {
  constexpr std::uint32_t kOurs[] = {abi::kKindConcurrentKernel, abi::kKindKernel, abi::kKindMemcpy,
                                     abi::kKindMemset};
  std::size_t count = 0;
  for (void* record = nullptr; (record = cupti_.next(data, valid, record));)
    count += std::find(std::begin(kOurs), std::end(kOurs), abi::read<std::uint32_t>(record, 0)) != std::end(kOurs);
  return count;
}

bool Decoder::times(const void* record, std::size_t start, std::size_t end, wire::Kernel& kernel) noexcept {
  const auto start_ticks = abi::read<std::uint64_t>(record, start);
  const auto end_ticks = abi::read<std::uint64_t>(record, end);
  kernel.start_ns = clock_.unix_ns(start_ticks);
  if (start_ticks == 0 || end_ticks < start_ticks || kernel.start_ns < earliest_ns_ || kernel.start_ns > latest_ns_) {
    ++invalid_;
    return false;
  }
  kernel.duration_ns = clock_.duration_ns(end_ticks - start_ticks);
  kernel.issue_ns = Launches::kUnknown;
  ++records_;
  return true;
}

void Decoder::join(const nccl::LaunchRing& ring) {
  if (!nccl_) nccl_ = std::make_unique<NcclLaunches>(ring);
}

void Decoder::call(const void* record, bool of_driver) noexcept {
  const auto correlation = abi::read<std::uint32_t>(record, abi::Api::kCorrelation);
  const auto start = abi::read<std::uint64_t>(record, abi::Api::kStart);
  const std::uint64_t start_ns = clock_.unix_ns(start);
  // Calls of NCCL's kind come all the time then: they are no larger part of the sample than all others.
  const bool sampled_out = nccl_ && launch_times_ == LaunchTimes::kSampled && !LaunchWindows::open(start_ns);
  if (with_launches_ && !sampled_out) launches_.launch(correlation, start);
  const auto which = abi::read<std::uint32_t>(record, abi::Api::kCall);
  if (nccl_ && of_driver && std::find(std::begin(abi::kNcclLaunches), std::end(abi::kNcclLaunches), which) !=
                                std::end(abi::kNcclLaunches))
    nccl_->called(correlation, abi::read<std::uint32_t>(record, abi::Api::kThread), start_ns,
                  clock_.unix_ns(abi::read<std::uint64_t>(record, abi::Api::kEnd)));
}

/// By its name: those of them whose call is not known yet wait for it.
bool Decoder::of_nccl(const wire::Kernel& kernel) const noexcept {
  constexpr char kPrefix[] = "nccl";
  return std::strncmp(names_.records()[kernel.name_id - 1].text, kPrefix, sizeof kPrefix - 1) == 0;
}

void Decoder::kernel(const void* record) {
  wire::Kernel kernel;
  if (!times(record, abi::Kernel::kStart, abi::Kernel::kEnd, kernel)) return;
  const bool of_graph = abi::read<std::uint32_t>(record, abi::Kernel::kGraph) != 0;
  budget_.kernel(kernel.start_ns, kernel.duration_ns, of_graph);
  kernel.name_id = names_.of_kernel(abi::read<const char*>(record, abi::Kernel::kName));
  kernel.stream = abi::read<std::uint32_t>(record, abi::Kernel::kStream);
  kernel.operation = static_cast<std::uint8_t>(wire::Operation::kKernel);
  kernel.device = device_number(abi::read<std::uint32_t>(record, abi::Kernel::kDevice));
  const auto correlation = abi::read<std::uint32_t>(record, abi::Kernel::kCorrelation);
  const auto start = abi::read<std::uint64_t>(record, abi::Kernel::kStart);
  bool waits = false;
  if (nccl_ && !of_graph) {
    kernel.kilobytes = nccl_->of(correlation);
    waits = kernel.kilobytes == 0 ? of_nccl(kernel) : !NcclLaunches::is_told(kernel.kilobytes);
  }
  std::int64_t ticks = Launches::kUnknown;
  if (with_launches_ && (with_graph_launches_ || !of_graph)) {
    bool found = false;
    ticks = launches_.latency(correlation, start, of_graph, found);
    waits = waits || (!found && flushes_with_launches_ > 0);
  }
  if (waits && launches_.wait({kernel, start, correlation, of_graph})) return;
  if (ticks >= 0) kernel.issue_ns = static_cast<std::int64_t>(clock_.duration_ns(static_cast<std::uint64_t>(ticks)));
  send(kernel, correlation);
}

void Decoder::send(const wire::Kernel& kernel, std::uint32_t correlation) {
  if (nccl_ && kernel.kilobytes) {
    NcclLaunches::Operations operations;
    const std::uint32_t count = nccl_->ended(correlation, kernel.duration_ns, operations);
    for (std::uint32_t at = 0; at < count; ++at) {
      wire::NcclOperation& told = link_.next_operation();
      told = {};
      told.start_ns = kernel.start_ns;
      told.launched_by = kernel.kilobytes;
      told.place = static_cast<std::uint8_t>(at);
      told.function = static_cast<std::uint8_t>(operations[at].function);
      told.sequence = operations[at].sequence;
      told.peer = operations[at].is_collective() ? -1 : static_cast<std::int32_t>(operations[at].peer);
    }
  }
  link_.next_kernel() = kernel;
}

void Decoder::flushed(bool last) {
  if (!launches_expected_ && flushes_with_launches_ > 0) --flushes_with_launches_;
  launches_.flushed([this, last](const Launches::Waiting& waiting, std::int64_t ticks) {
    wire::Kernel kernel = waiting.kernel;
    if (nccl_ && !waiting.of_graph) {
      if (!last && nccl_->goes_on(waiting.correlation)) return false;
      kernel.kilobytes = nccl_->of(waiting.correlation);
    }
    if (ticks >= 0) kernel.issue_ns = static_cast<std::int64_t>(clock_.duration_ns(static_cast<std::uint64_t>(ticks)));
    send(kernel, waiting.correlation);
    return true;
  });
}

void Decoder::copy(const void* record) {
  wire::Kernel kernel;
  if (!times(record, abi::Memcpy::kStart, abi::Memcpy::kEnd, kernel)) return;
  kernel.name_id = copy_name(abi::read<std::uint8_t>(record, abi::Memcpy::kCopyKind),
                             abi::read<std::uint8_t>(record, abi::Memcpy::kSourceKind),
                             abi::read<std::uint8_t>(record, abi::Memcpy::kDestinationKind));
  kernel.stream = abi::read<std::uint32_t>(record, abi::Memcpy::kStream);
  kernel.kilobytes = kilobytes(abi::read<std::uint64_t>(record, abi::Memcpy::kBytes));
  kernel.operation = static_cast<std::uint8_t>(wire::Operation::kMemcpy);
  kernel.device = device_number(abi::read<std::uint32_t>(record, abi::Memcpy::kDevice));
  link_.next_kernel() = kernel;
}

void Decoder::set(const void* record) {
  wire::Kernel kernel;
  if (!times(record, abi::Memset::kStart, abi::Memset::kEnd, kernel)) return;
  kernel.name_id = set_name(abi::read<std::uint16_t>(record, abi::Memset::kMemoryKind));
  kernel.stream = abi::read<std::uint32_t>(record, abi::Memset::kStream);
  const auto bytes = abi::read<std::uint64_t>(record, abi::Memset::kBytes);
  kernel.kilobytes = kilobytes(bytes);
  kernel.operation = static_cast<std::uint8_t>(wire::Operation::kMemset);
  kernel.device = device_number(abi::read<std::uint32_t>(record, abi::Memset::kDevice));
  kernel.mark = step_mark(abi::read<std::uint32_t>(record, abi::Memset::kValue), bytes);
  link_.next_kernel() = kernel;
}

std::uint32_t Decoder::copy_name(std::uint8_t kind, std::uint8_t from, std::uint8_t to) {
  if (kind >= std::size(kCopies)) kind = 0;
  if (from >= std::size(kMemories)) from = 0;
  if (to >= std::size(kMemories)) to = 0;
  std::uint32_t& id = copy_names_[kind][from][to];
  if (id == 0)
    id = names_.of_text(std::string("Memcpy ") + kCopies[kind] + " (" + kMemories[from] + " -> " + kMemories[to] + ")");
  return id;
}

std::uint32_t Decoder::set_name(std::uint16_t memory) {
  if (memory >= std::size(kMemories)) memory = 0;
  std::uint32_t& id = set_names_[memory];
  if (id == 0) id = names_.of_text(std::string("Memset (") + kMemories[memory] + ")");
  return id;
}

}  // namespace argus
