// What libargus_nccl asks of NCCL: its version, and an address within it.

#include <cstdlib>

extern "C" {

int ncclGetVersion(int* version) {
  const char* chosen = std::getenv("FAKE_NCCL_VERSION");
  *version = chosen ? std::atoi(chosen) : 0;
  return 0;
}

void fake_nccl_log(int, unsigned long, const char*, int, const char*, ...) {}

}
