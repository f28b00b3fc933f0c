/* The C interface of libargus_cupti, for ctypes in the same process. Every call may come from any thread; in a forked
 * child and in a process that is not observed they answer ARGUS_NOT_ACTIVE. adopt, pause and rearm answer when CUPTI
 * has, and statistics waits for one of them that is under way; the others answer at once. */
#ifndef ARGUS_CONTROL_H
#define ARGUS_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARGUS_EXPORT __attribute__((visibility("default")))

/* argus_training/kernels_control.py refuses any other. */
#define ARGUS_CUPTI_INTERFACE 1

enum { ARGUS_OK = 0, ARGUS_NOT_ACTIVE = -1, ARGUS_REFUSED = -2 };

/* Monotone counters of this process, but for free_buffers, collecting and up. */
struct ArgusCuptiStatistics {
  uint64_t records;          /* kernels, copies and memory sets read from CUPTI, with plausible times */
  uint64_t sent;             /* of these: taken by the exporter's socket */
  uint64_t dropped_socket;   /* of these: no exporter, or it did not read */
  uint64_t dropped_cupti;    /* dropped by CUPTI, which got no buffer */
  uint64_t dropped_buffers;  /* dropped here, in buffers of the reserve */
  uint64_t dropped_invalid;  /* dropped here for their times */
  uint64_t foreign_buffers;  /* buffers of others that came to our callback */
  uint64_t replaced_buffers; /* buffers that stayed with another user of CUPTI */
  uint64_t pauses;
  uint64_t rearms;           /* of all reasons */
  uint64_t silent_rearms;    /* of the watchdog */
  uint64_t clock_changes;    /* times that CUPTI's clock was found to be another */
  uint64_t connects;
  uint64_t names;
  uint64_t cpu_ns;           /* CPU time of the worker thread */
  uint64_t free_buffers;
  uint32_t cupti_version;    /* API number; 0: none */
  uint32_t collecting;
  uint32_t up;
  uint32_t unlisted;         /* kernels of NCCL whose operations were overwritten before they were told */
  char reason[32];           /* why it is not up */
};

ARGUS_EXPORT int argus_cupti_interface(void);
/* Who this process is, where its environment does not say: from here on it is observed. Once; ARGUS_NOT_ACTIVE
 * where nobody waits for it, ARGUS_REFUSED where another process is that rank. */
ARGUS_EXPORT int argus_cupti_adopt(int rank, int local_rank, int world_size, const char* job);
/* Before another user of CUPTI, such as a torch.profiler window: kinds off, buffers home. */
ARGUS_EXPORT int argus_cupti_pause(void);
/* After it: callbacks and kinds ours again. because_silent: the watchdog asks. */
ARGUS_EXPORT int argus_cupti_rearm(int because_silent);
/* Have the worker ask for complete buffers now, and send what they hold. */
ARGUS_EXPORT int argus_cupti_flush(void);
/* From libargus_nccl: where it writes down the launches of NCCL (native/nccl/launches.hpp), for as long as the process
 * lives; again where it begins or ceases to write. ARGUS_REFUSED: the two are not of one release. */
ARGUS_EXPORT int argus_cupti_nccl_launches(const void* ring, int interface);
/* Copies min(size, sizeof) bytes. */
ARGUS_EXPORT int argus_cupti_statistics(struct ArgusCuptiStatistics* out, size_t size);

/* The entry point that CUDA calls in cuInit, by CUDA_INJECTION64_PATH. Always 1: never a reason to fail. */
ARGUS_EXPORT int InitializeInjection(void);

#ifdef __cplusplus
}
#endif
#endif
