#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

/// A host that calls a profiler plugin as NCCL of one interface version does. Descriptors are written by offset, from
/// a table of its own (../../../docs/nccl.md), so that a mistake in the plugin's structures shows.
namespace fake {

using Bytes = std::vector<unsigned char>;

/// Where members of a descriptor lie; -1: this version has none.
struct Layout {
  std::size_t size;
  int coll_name, coll_hash, coll_seq, coll_func, coll_count, coll_datatype, coll_parent;
  int p2p_hash, p2p_func, p2p_datatype, p2p_count, p2p_peer, p2p_parent;
};

/// One operation that a program asks for.
struct Call {
  std::string function;
  int peer = -1;  ///< of a transfer; -1: a collective
};

struct Communicator {
  void* context = nullptr;
  std::uint64_t hash = 0;
  int rank = 0;
  std::map<std::string, std::uint64_t> sequence;
};

/// One network operation that the progress thread is to do.
struct NetworkOperation {
  Communicator* communicator;
  void* parent;
  int channel;
  int peer;
  bool send;
  int steps;
};

struct Slow {
  int state = -1;  ///< a step stays so long in this one
  long microseconds = 0;
};

class Host {
 public:
  Host(int version, const char* library);

  /// Called where NCCL calls the driver, if set: on the thread that launches, with the operations of the kernel.
  std::function<void(Communicator&, const std::vector<Call>&)> launches;
  /// So often a receive is started, and a send's wait for its peer recorded: NCCL does at each try.
  int attempts = 3;

  int version() const { return version_; }
  int mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED); }
  void load();
  void unload();
  void watch(bool on);

  void init(Communicator& communicator, const char* name, int ranks);
  void finalize(Communicator& communicator);

  /// As NCCL calls for a group of these, which is one kernel: on the caller's thread, network operations put off into
  /// `queue`. `count`: of float32. `channels`: of a collective; 0: nothing goes over the network.
  void group(Communicator& communicator, const std::vector<Call>& calls, std::size_t count, int channels,
             std::vector<NetworkOperation>& queue);
  void collectives(Communicator& communicator, const std::vector<std::string>& functions, std::size_t count,
                   int channels, std::vector<NetworkOperation>& queue);
  void progress(const NetworkOperation& operation, const Slow& slow);

  // Raw calls.
  void* start(void* context, Bytes descriptor);
  void stop(void* handle);
  void record(void* handle, int state, std::uint64_t argument, bool with_argument = true);
  Bytes descriptor(std::uint64_t type, void* parent, int rank) const;
  /// These point into `call`.
  Bytes task_descriptor(const Communicator& communicator, const Call& call, std::size_t count, std::uint64_t sequence,
                        void* above, void* group) const;
  Bytes api_descriptor(const Call& call, std::size_t count, void* group_api) const;
  Bytes operation_descriptor(const NetworkOperation& operation, int pid) const;
  Bytes step_descriptor(void* parent, int step) const;
  bool sends(std::uint64_t type) const;
  /// Steps of a send with five callbacks each, and nothing else in between.
  void bench_steps(void* context, void* operation, int steps);
  void step(void* operation, const NetworkOperation& what, int number, const Slow& slow);

 private:
  template <class T>
  static void put(Bytes& bytes, int at, T value);

  const int version_;
  const std::string path_;
  const Layout layout_;
  int mask_ = 0;
  void* library_ = nullptr;
  void* const* table_ = nullptr;
};

}  // namespace fake
