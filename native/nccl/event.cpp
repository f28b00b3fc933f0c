#include "event.hpp"

#include <cstring>
#include <iterator>

#include "page.hpp"

namespace argus::nccl {
namespace {

// NCCL's own enumerations, which version 1 has in place of names.
constexpr const char* kFunctions[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                      "AllReduce", "SendRecv", "Send",     "Recv"};
constexpr const char* kDatatypes[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                      "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                      "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
constexpr std::uint8_t kDatatypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static_assert(std::size(kDatatypes) == std::size(kDatatypeBytes));
constexpr const char* kAlgorithms[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};

template <std::size_t size>
const char* name_of(const char* const (&names)[size], std::uint8_t code) noexcept {
  return code < size ? names[code] : "Unknown";
}

template <std::size_t size>
std::uint8_t code_of(const char* const (&names)[size], const char* name) noexcept {
  for (std::size_t code = 0; name && code < size; ++code)
    if (std::strcmp(names[code], name) == 0) return static_cast<std::uint8_t>(code);
  return static_cast<std::uint8_t>(size);
}

void set_function(Event& event, const char* name) noexcept {
  event.function_name = name;
  event.function = page::kFunctions - 1;
  for (std::uint32_t at = 0; name && at + 1 < page::kFunctions; ++at)
    if (std::strcmp(page::kFunctionNames[at], name) == 0) event.function = at;
}

template <class Descriptor>
void common(const Descriptor& descriptor, Event& event) noexcept {
  event.type = descriptor.type;
  event.parent = descriptor.parentObj;
  event.rank = descriptor.rank;
  if (descriptor.type == kProxyStep) event.step = descriptor.proxyStep.step;
  if (descriptor.type == kProxyOp) event.operation = descriptor.proxyOp;
}

template <class Descriptor>
void named(const Descriptor& descriptor, Event& event) noexcept {
  if (descriptor.type == kColl) {
    set_function(event, descriptor.coll.func);
    event.datatype = descriptor.coll.datatype;
    event.algorithm = descriptor.coll.algo;
    event.protocol = descriptor.coll.proto;
  } else if (descriptor.type == kP2p) {
    set_function(event, descriptor.p2p.func);
    event.datatype = descriptor.p2p.datatype;
  }
}

template <class Descriptor>
void call(const Descriptor& descriptor, Event& event) noexcept {
  if (descriptor.type == kColl) {
    event.sequence = descriptor.coll.seqNumber;
    event.send_buffer = descriptor.coll.sendBuff;
    event.receive_buffer = descriptor.coll.recvBuff;
    event.count = descriptor.coll.count;
    event.root = descriptor.coll.root;
    event.warps = descriptor.coll.nWarps;
  } else if (descriptor.type == kP2p) {
    event.receive_buffer = descriptor.p2p.buff;
    event.count = descriptor.p2p.count;
    event.peer = descriptor.p2p.peer;
  }
}

/// Versions 1 to 3: identity in the event.
template <class Descriptor>
void old(const Descriptor& descriptor, Event& event) noexcept {
  call(descriptor, event);
  if (descriptor.type == kColl) {
    event.name = descriptor.coll.name;
    event.hash = descriptor.coll.commHash;
    event.channels = descriptor.coll.nMaxChannels;
  } else if (descriptor.type == kP2p) {
    event.name = descriptor.p2p.name;
    event.hash = descriptor.p2p.commHash;
  }
}

template <class Descriptor>
void later(const Descriptor& descriptor, Event& event) noexcept {
  call(descriptor, event);
  named(descriptor, event);
  if (descriptor.type == kColl) event.channels = descriptor.coll.nChannels;
  if (descriptor.type == kP2p) event.channels = descriptor.p2p.nChannels;
  if (descriptor.type == kNetPlugin) event.network = descriptor.netPlugin;
  if (descriptor.type == kKernelCh) {
    event.channel = descriptor.kernelCh.channelId;
    event.timer = descriptor.kernelCh.pTimer;
  }
}

template <class Descriptor>
void begin(const Event& event, Descriptor& descriptor) noexcept {
  std::memset(static_cast<void*>(&descriptor), 0, sizeof descriptor);
  descriptor.type = static_cast<std::uint8_t>(event.type);
  descriptor.parentObj = event.parent_group ? event.parent_group : event.parent;
  descriptor.rank = event.rank;
  if (event.type == kProxyStep) descriptor.proxyStep.step = event.step;
  if (event.type == kProxyOp) descriptor.proxyOp = event.operation;
  if (event.type == kColl) {
    descriptor.coll.seqNumber = event.sequence;
    descriptor.coll.sendBuff = event.send_buffer;
    descriptor.coll.recvBuff = event.receive_buffer;
    descriptor.coll.count = event.count;
    descriptor.coll.root = event.root;
    descriptor.coll.nWarps = event.warps;
  } else if (event.type == kP2p) {
    descriptor.p2p.buff = event.receive_buffer;
    descriptor.p2p.count = event.count;
    descriptor.p2p.peer = event.peer;
  }
}

template <class Descriptor>
void begin_old(const Event& event, Descriptor& descriptor) noexcept {
  begin(event, descriptor);
  if (event.type == kColl) {
    descriptor.coll.name = event.name;
    descriptor.coll.commHash = event.hash;
    descriptor.coll.nMaxChannels = event.channels;
  } else if (event.type == kP2p) {
    descriptor.p2p.name = event.name;
    descriptor.p2p.commHash = event.hash;
  }
}

template <class Descriptor>
void name(const Event& event, Descriptor& descriptor) noexcept {
  if (event.type == kColl) {
    descriptor.coll.func = event.function_name;
    descriptor.coll.datatype = event.datatype;
    descriptor.coll.algo = event.algorithm;
    descriptor.coll.proto = event.protocol;
  } else if (event.type == kP2p) {
    descriptor.p2p.func = event.function_name;
    descriptor.p2p.datatype = event.datatype;
  }
}

}  // namespace

std::uint64_t Event::bytes() const noexcept {
  const std::uint8_t code = code_of(kDatatypes, datatype);
  return code < std::size(kDatatypes) ? count * kDatatypeBytes[code] : count;
}

void decode(const DescriptorV1& descriptor, Event& event) noexcept {
  common(descriptor, event);
  old(descriptor, event);
  if (descriptor.type == kColl) {
    set_function(event, name_of(kFunctions, descriptor.coll.func));
    event.datatype = name_of(kDatatypes, descriptor.coll.datatype);
    event.algorithm = name_of(kAlgorithms, descriptor.coll.algo);
    event.protocol = name_of(kProtocols, descriptor.coll.proto);
  } else if (descriptor.type == kP2p) {
    set_function(event, name_of(kFunctions, descriptor.p2p.func));
    event.datatype = name_of(kDatatypes, descriptor.p2p.datatype);
  }
}

void decode(const DescriptorV2& descriptor, Event& event) noexcept {
  common(descriptor, event);
  old(descriptor, event);
  named(descriptor, event);
}

void decode(const DescriptorV3& descriptor, Event& event) noexcept {
  common(descriptor, event);
  old(descriptor, event);
  named(descriptor, event);
  if (descriptor.type == kKernelCh) event.channel = descriptor.kernelCh.channelId;
  if (descriptor.type == kNetPlugin) event.network = descriptor.netPlugin;
}

void decode(const DescriptorV4& descriptor, Event& event) noexcept {
  common(descriptor, event);
  later(descriptor, event);
}

void decode(const DescriptorV5& descriptor, Event& event) noexcept {
  common(descriptor, event);
  later(descriptor, event);
  switch (descriptor.type) {
    case kColl:
      event.parent_group = descriptor.coll.parentGroup;
      break;
    case kP2p:
      event.parent_group = descriptor.p2p.parentGroup;
      break;
    case kCollApi:
      set_function(event, descriptor.collApi.func);
      break;
    case kP2pApi:
      set_function(event, descriptor.p2pApi.func);
      break;
    default:
      break;
  }
}

void encode(const Event& event, DescriptorV1& descriptor) noexcept {
  begin_old(event, descriptor);
  if (event.type == kColl) {
    descriptor.coll.func = code_of(kFunctions, event.function_name);
    descriptor.coll.datatype = code_of(kDatatypes, event.datatype);
    descriptor.coll.algo = code_of(kAlgorithms, event.algorithm);
    descriptor.coll.proto = code_of(kProtocols, event.protocol);
  } else if (event.type == kP2p) {
    descriptor.p2p.func = code_of(kFunctions, event.function_name);
    descriptor.p2p.datatype = code_of(kDatatypes, event.datatype);
  }
}

void encode(const Event& event, DescriptorV2& descriptor) noexcept {
  begin_old(event, descriptor);
  name(event, descriptor);
}

void encode(const Event& event, DescriptorV3& descriptor) noexcept {
  begin_old(event, descriptor);
  name(event, descriptor);
  if (event.type == kKernelCh) descriptor.kernelCh.channelId = event.channel;
  if (event.type == kNetPlugin) descriptor.netPlugin = event.network;
}

void encode(const Event& event, DescriptorV4& descriptor) noexcept {
  begin(event, descriptor);
  name(event, descriptor);
  if (event.type == kColl) descriptor.coll.nChannels = event.channels;
  if (event.type == kP2p) descriptor.p2p.nChannels = event.channels;
  if (event.type == kNetPlugin) descriptor.netPlugin = event.network;
  if (event.type == kKernelCh) {
    descriptor.kernelCh.channelId = event.channel;
    descriptor.kernelCh.pTimer = event.timer;
  }
}

}  // namespace argus::nccl
