#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "variables.hpp"

namespace argus::nccl {
namespace {

constexpr int kGetSeals = 1024 + 10;  // F_GET_SEALS, which a C library before 2.27 does not name
constexpr int kShrinks = 0x2;

}  // namespace

Memory Memory::map(const std::string& variable) noexcept {
  const auto colon = variable.find(':');
  if (colon == std::string::npos) return {};
  const long pid = whole_number(variable.substr(0, colon));
  const long descriptor = whole_number(variable.substr(colon + 1));
  if (pid != getpid() || descriptor < 0) return {};
  const int fd = static_cast<int>(descriptor);
  const int seals = fcntl(fd, kGetSeals);
  if (seals < 0 || !(seals & kShrinks)) return {};
  if (lseek(fd, 0, SEEK_END) != static_cast<off_t>(page::kSize)) return {};  // both sides read and write by offset
  void* mapped = mmap(nullptr, page::kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return {};
  auto* bytes = static_cast<char*>(mapped);
  return {reinterpret_cast<page::Header*>(bytes), reinterpret_cast<page::Communicator*>(bytes + page::kHeaderBytes)};
}

}  // namespace argus::nccl
