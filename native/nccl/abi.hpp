#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

/// NCCL's profiler plugin interface, versions 1 to 7, so that NCCL is not needed to build.
///
/// Written from the headers src/include/plugin/profiler/profiler_v1.h to _v7.h of NCCL 2.30.7 and, for v7, of its
/// master: members and their order. The offsets asserted below are those that a compiler gave for those headers.
/// Versions 5, 6 and 7 differ only in members at the ends of arms. NCCL reads our tables and never writes them.
namespace argus::nccl {

using Result = int;
inline constexpr Result kSuccess = 0;

/// Types of events: one bit each.
enum Type : std::uint64_t {
  kGroup = 0x1,
  kColl = 0x2,
  kP2p = 0x4,
  kProxyOp = 0x8,
  kProxyStep = 0x10,
  kProxyCtrl = 0x20,
  kKernelCh = 0x40,
  kNetPlugin = 0x80,
  kGroupApi = 0x100,
  kCollApi = 0x200,
  kP2pApi = 0x400,
  kKernelLaunch = 0x800,
  kCeColl = 0x1000,
  kCeSync = 0x2000,
  kCeBatch = 0x4000,
  kKernelPhase = 0x8000,
};

/// States of events that we read, or that not every version knows.
enum EventState : int {
  kSendRemFifoWait = 1,
  kSendTransmitted = 2,
  kSendGpuWait = 8,
  kSendWait = 9,
  kRecvWait = 10,
  kRecvFlushWait = 11,
  kRecvGpuWait = 12,
  kProxyCtrlIdle = 13,
  kProxyCtrlAppendEnd = 18,
  kInProgress = 19,
  kSendPeerWait = 20,
  kNetPluginUpdate = 21,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
  kCeLast = 30,
  kKernelPhaseStop = 31,
};

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct ProxyOp {
  pid_t pid;
  std::uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;
  int isSend;
};

struct NetPlugin {
  std::int64_t id;
  void* data;
};

struct DescriptorV1 {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      std::uint64_t commHash;
      std::uint64_t seqNumber;
      std::uint8_t func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      std::uint8_t datatype;
      std::uint32_t op;
      std::size_t trafficBytes;
      std::uint8_t nMaxChannels;
      std::uint8_t nWarps;
      std::uint8_t algo;
      std::uint8_t proto;
      int isCollnet;
      int isNvls;
    } coll;
    struct {
      const char* name;
      std::uint64_t commHash;
      std::uint8_t func;
      void* buff;
      std::uint8_t datatype;
      std::size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
    struct {
      int step;
    } proxyStep;
  };
};

struct DescriptorV2 {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      std::uint64_t commHash;
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::size_t trafficBytes;
      std::uint8_t nMaxChannels;
      std::uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    struct {
      const char* name;
      std::uint64_t commHash;
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
    struct {
      int step;
    } proxyStep;
  };
};

struct DescriptorV3 {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      std::uint64_t commHash;
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nMaxChannels;
      std::uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    struct {
      const char* name;
      std::uint64_t commHash;
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      std::uint8_t channelId;
    } kernelCh;
    NetPlugin netPlugin;
  };
};

struct DescriptorV4 {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nChannels;
      std::uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
      std::uint8_t nChannels;
    } p2p;
    ProxyOp proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      std::uint8_t channelId;
      std::uint64_t pTimer;
    } kernelCh;
    NetPlugin netPlugin;
  };
};

/// Versions 5 to 7. What v6 and v7 added (userTag, kernelVariant, kernelPhase) stands at the ends of arms and is
/// not read: a tree of AMD's has a v7 without the tags. So this is the descriptor of v5 and v6, and what v7 and v5
/// have in common.
struct DescriptorV5 {
  std::uint64_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      bool graphCaptured;
      int groupDepth;
    } groupApi;
    struct {
      const char* func;
      std::size_t count;
      const char* datatype;
      int root;
      void* stream;
      bool graphCaptured;
    } collApi;
    struct {
      const char* func;
      std::size_t count;
      const char* datatype;
      void* stream;
      bool graphCaptured;
    } p2pApi;
    struct {
      void* stream;
    } kernelLaunch;
    struct {
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nChannels;
      std::uint8_t nWarps;
      const char* algo;
      const char* proto;
      void* parentGroup;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
      std::uint8_t nChannels;
      void* parentGroup;
    } p2p;
    ProxyOp proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      std::uint8_t channelId;
      std::uint64_t pTimer;
    } kernelCh;
    NetPlugin netPlugin;
  };
};

/// Bytes of a descriptor by version.
inline constexpr std::size_t kDescriptorBytes[] = {0, 120, 128, 120, 104, 112, 112, 136};

/// Arguments of a state, versions 1 to 3.
struct OldArguments {
  std::size_t transSize;
  int steps;
};
/// Since version 4: one word.
union Arguments {
  std::size_t transSize;
  int appendedProxyOps;
  void* data;
  std::uint64_t pTimer;
};

template <class Init>
struct Table {
  const char* name;
  Init init;
  Result (*startEvent)(void* context, void** handle, void* descriptor);
  Result (*stopEvent)(void* handle);
  Result (*recordEventState)(void* handle, int state, void* arguments);
  Result (*finalize)(void* context);
};
using TableV1 = Table<Result (*)(void** context, int* mask)>;
using TableV4 = Table<Result (*)(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks,
                                 int rank, Logger logger)>;
using TableV5 = Table<Result (*)(void** context, std::uint64_t hash, int* mask, const char* name, int nodes, int ranks,
                                 int rank, Logger logger)>;

static_assert(sizeof(TableV1) == 48 && sizeof(TableV4) == 48 && sizeof(TableV5) == 48);
static_assert(offsetof(TableV5, init) == 8 && offsetof(TableV5, startEvent) == 16);
static_assert(offsetof(TableV5, stopEvent) == 24 && offsetof(TableV5, recordEventState) == 32);
static_assert(offsetof(TableV5, finalize) == 40);

static_assert(sizeof(DescriptorV1) == kDescriptorBytes[1] && sizeof(DescriptorV2) == kDescriptorBytes[2]);
static_assert(sizeof(DescriptorV3) == kDescriptorBytes[3] && sizeof(DescriptorV4) == kDescriptorBytes[4]);
static_assert(sizeof(DescriptorV5) == kDescriptorBytes[5]);
static_assert(sizeof(OldArguments) == 16 && offsetof(OldArguments, steps) == 8 && sizeof(Arguments) == 8);

#define ARGUS_AT(version, member, offset) static_assert(offsetof(DescriptorV##version, member) == offset)
#define ARGUS_COMMON(version)              \
  ARGUS_AT(version, type, 0);              \
  ARGUS_AT(version, parentObj, 8);         \
  ARGUS_AT(version, rank, 16);             \
  ARGUS_AT(version, coll, 24);             \
  ARGUS_AT(version, proxyOp.pid, 24);      \
  ARGUS_AT(version, proxyOp.channelId, 28);\
  ARGUS_AT(version, proxyOp.peer, 32);     \
  ARGUS_AT(version, proxyOp.nSteps, 36);   \
  ARGUS_AT(version, proxyOp.chunkSize, 40);\
  ARGUS_AT(version, proxyOp.isSend, 44);   \
  ARGUS_AT(version, proxyStep.step, 24)
ARGUS_COMMON(1);
ARGUS_COMMON(2);
ARGUS_COMMON(3);
ARGUS_COMMON(4);
ARGUS_COMMON(5);
ARGUS_AT(1, coll.commHash, 32);
ARGUS_AT(1, coll.seqNumber, 40);
ARGUS_AT(1, coll.func, 48);
ARGUS_AT(1, coll.count, 72);
ARGUS_AT(1, coll.root, 80);
ARGUS_AT(1, coll.datatype, 84);
ARGUS_AT(1, coll.op, 88);
ARGUS_AT(1, coll.trafficBytes, 96);
ARGUS_AT(1, coll.nMaxChannels, 104);
ARGUS_AT(1, coll.nWarps, 105);
ARGUS_AT(1, coll.algo, 106);
ARGUS_AT(1, coll.proto, 107);
ARGUS_AT(1, coll.isCollnet, 108);
ARGUS_AT(1, coll.isNvls, 112);
ARGUS_AT(1, p2p.func, 40);
ARGUS_AT(1, p2p.buff, 48);
ARGUS_AT(1, p2p.datatype, 56);
ARGUS_AT(1, p2p.count, 64);
ARGUS_AT(1, p2p.peer, 72);
ARGUS_AT(2, coll.func, 48);
ARGUS_AT(2, coll.count, 72);
ARGUS_AT(2, coll.datatype, 88);
ARGUS_AT(2, coll.trafficBytes, 96);
ARGUS_AT(2, coll.nMaxChannels, 104);
ARGUS_AT(2, coll.algo, 112);
ARGUS_AT(2, coll.proto, 120);
ARGUS_AT(2, p2p.func, 40);
ARGUS_AT(2, p2p.datatype, 56);
ARGUS_AT(2, p2p.count, 64);
ARGUS_AT(2, p2p.peer, 72);
ARGUS_AT(3, coll.datatype, 88);
ARGUS_AT(3, coll.nMaxChannels, 96);
ARGUS_AT(3, coll.nWarps, 97);
ARGUS_AT(3, coll.algo, 104);
ARGUS_AT(3, coll.proto, 112);
ARGUS_AT(3, kernelCh.channelId, 24);
ARGUS_AT(3, netPlugin.id, 24);
ARGUS_AT(3, netPlugin.data, 32);
#define ARGUS_LATER(version)                \
  ARGUS_AT(version, coll.seqNumber, 24);    \
  ARGUS_AT(version, coll.func, 32);         \
  ARGUS_AT(version, coll.sendBuff, 40);     \
  ARGUS_AT(version, coll.recvBuff, 48);     \
  ARGUS_AT(version, coll.count, 56);        \
  ARGUS_AT(version, coll.root, 64);         \
  ARGUS_AT(version, coll.datatype, 72);     \
  ARGUS_AT(version, coll.nChannels, 80);    \
  ARGUS_AT(version, coll.nWarps, 81);       \
  ARGUS_AT(version, coll.algo, 88);         \
  ARGUS_AT(version, coll.proto, 96);        \
  ARGUS_AT(version, p2p.func, 24);          \
  ARGUS_AT(version, p2p.buff, 32);          \
  ARGUS_AT(version, p2p.datatype, 40);      \
  ARGUS_AT(version, p2p.count, 48);         \
  ARGUS_AT(version, p2p.peer, 56);          \
  ARGUS_AT(version, p2p.nChannels, 60);     \
  ARGUS_AT(version, kernelCh.channelId, 24);\
  ARGUS_AT(version, kernelCh.pTimer, 32);   \
  ARGUS_AT(version, netPlugin.data, 32)
ARGUS_LATER(4);
ARGUS_LATER(5);
ARGUS_AT(5, coll.parentGroup, 104);
ARGUS_AT(5, p2p.parentGroup, 64);
ARGUS_AT(5, groupApi.groupDepth, 28);
ARGUS_AT(5, collApi.func, 24);
ARGUS_AT(5, collApi.count, 32);
ARGUS_AT(5, collApi.datatype, 40);
ARGUS_AT(5, collApi.root, 48);
ARGUS_AT(5, collApi.stream, 56);
ARGUS_AT(5, collApi.graphCaptured, 64);
ARGUS_AT(5, p2pApi.stream, 48);
ARGUS_AT(5, p2pApi.graphCaptured, 56);
ARGUS_AT(5, kernelLaunch.stream, 24);
#undef ARGUS_COMMON
#undef ARGUS_LATER
#undef ARGUS_AT

}  // namespace argus::nccl
