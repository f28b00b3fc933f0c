// The few functions that we and libstdc++ use and that a newer glibc gave a newer version, bound to the oldest.
//
// A library asks at load time for the version that its linker saw: built on Debian 12 it would be refused in a
// training image with Ubuntu 20.04 or RHEL 8, although those have every one of these functions. Each is defined
// here, seen in this library only, and calls the version that its architecture began with; libstdc++'s own
// objects, which are linked into ours, meet these definitions too. What moved, and when: glibc's NEWS of 2.29
// (exp and pow without SVID errors), 2.32 (pthread_sigmask), 2.33 (stat) and 2.34 (libdl and libpthread became
// part of libc).

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__x86_64__)
#define ARGUS_FIRST "2.2.5"
#define ARGUS_SINCE(version) version
#else  // this architecture came with 2.17: what is older has that version
#define ARGUS_FIRST "2.17"
#define ARGUS_SINCE(version) "2.17"
#endif

/// `name`, as the rest of the library calls it, is glibc's of this version.
#define ARGUS_BIND(version, result, name, parameters, arguments)                     \
  __asm__(".symver argus_older_" #name ", " #name "@GLIBC_" version);                \
  extern "C" result argus_older_##name parameters;                                   \
  [[gnu::visibility("hidden")]] result argus_bound_##name parameters __asm__(#name); \
  result argus_bound_##name parameters { return argus_older_##name arguments; }

ARGUS_BIND(ARGUS_FIRST, double, exp, (double x), (x))
ARGUS_BIND(ARGUS_FIRST, double, pow, (double x, double y), (x, y))

ARGUS_BIND(ARGUS_FIRST, void*, dlopen, (const char* file, int mode), (file, mode))
ARGUS_BIND(ARGUS_FIRST, void*, dlsym, (void* handle, const char* name), (handle, name))
ARGUS_BIND(ARGUS_FIRST, char*, dlerror, (), ())
ARGUS_BIND(ARGUS_FIRST, int, dladdr, (const void* address, Dl_info* info), (address, info))

ARGUS_BIND(ARGUS_FIRST, int, pthread_create,
           (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument),
           (thread, attributes, start, argument))
ARGUS_BIND(ARGUS_FIRST, int, pthread_join, (pthread_t thread, void** result), (thread, result))
ARGUS_BIND(ARGUS_FIRST, int, pthread_detach, (pthread_t thread), (thread))
ARGUS_BIND(ARGUS_SINCE("2.12"), int, pthread_setname_np, (pthread_t thread, const char* name), (thread, name))
ARGUS_BIND(ARGUS_FIRST, int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), (how, set, before))
ARGUS_BIND(ARGUS_SINCE("2.3.3"), int, pthread_condattr_setclock, (pthread_condattr_t * attributes, clockid_t clock),
           (attributes, clock))

#if defined(__x86_64__)
constexpr int kStat = 1;  // _STAT_VER_LINUX of <bits/stat.h> before 2.33
#else
constexpr int kStat = 0;
#endif
// Before 2.33 the header made these of functions with the layout's version in front.
#define ARGUS_STAT(name, older)                                                                    \
  __asm__(".symver argus_older_" #older ", " #older "@GLIBC_" ARGUS_FIRST);                        \
  extern "C" int argus_older_##older(int version, const char* path, struct stat* out);             \
  [[gnu::visibility("hidden")]] int argus_bound_##name(const char*, struct stat*) __asm__(#name);  \
  int argus_bound_##name(const char* path, struct stat* out) { return argus_older_##older(kStat, path, out); }
ARGUS_STAT(stat, __xstat)
ARGUS_STAT(lstat, __lxstat)

/// 2.32 tells libstdc++ by this whether it may count references without atomics: for us, never.
[[gnu::visibility("hidden")]] extern char argus_single_threaded __asm__("__libc_single_threaded");
char argus_single_threaded = 0;

#endif
