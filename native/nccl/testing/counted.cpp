#include "counted.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
}

namespace {
void count(std::uint64_t& what) noexcept {
  if (counted::counting) __atomic_fetch_add(&what, 1, __ATOMIC_RELAXED);
}
}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  count(counted::allocations);
  return __libc_malloc(size);
}
void* calloc(std::size_t count_of, std::size_t size) {
  count(counted::allocations);
  return __libc_calloc(count_of, size);
}
void* realloc(void* before, std::size_t size) {
  count(counted::allocations);
  return __libc_realloc(before, size);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const lock = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  count(counted::locks);
  return lock(mutex);
}
}
