// The fake host for a process that is no nccl_app: it loads the plugin that is named to it and tells it of collectives,
// on the thread that calls them, as the NCCL of a training process would.

#include <thread>

#include "counted.hpp"
#include "host.hpp"

namespace counted {  // as host.cpp wants them; nobody counts here
thread_local bool counting = false;
std::uint64_t allocations = 0;
std::uint64_t locks = 0;
}  // namespace counted

/// An all-reduce of so many float32 over one communicator, with its steps over the network. `plugin` is read at the
/// first call. One thread at a time.
extern "C" void fake_nccl_all_reduce(const char* plugin, int rank, int ranks, std::size_t count) {
  // Never destroyed: the plugin stays, as NCCL's does.
  static auto& host = *new fake::Host(5, plugin);
  static auto& communicator = *[rank, ranks] {
    auto* made = new fake::Communicator;
    made->hash = 0x1000;
    made->rank = rank;
    host.init(*made, "default_pg", ranks);
    return made;
  }();
  std::vector<fake::NetworkOperation> queue;
  host.collectives(communicator, {"AllReduce"}, count, 1, queue);
  std::thread([&queue] {
    for (const fake::NetworkOperation& operation : queue) host.progress(operation, {});
  }).join();
}
