// Stand-in for libcuda.so.1: all that it does is load the injection library, as the driver does in cuInit.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

extern "C" int cuInit(unsigned) {
  static bool initialised = false;
  if (initialised) return 0;
  initialised = true;
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (!path) return 0;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "fake CUDA: cannot load the injection: %s\n", dlerror());
    return 0;
  }
  auto* initialize = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (initialize && initialize() != 1) std::abort();  // the driver would fail cuInit
  return 0;
}
