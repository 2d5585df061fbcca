// A disk that takes its time, loaded before a program (LD_PRELOAD): what rank 0 writes first is
// flushed SLOW_DISK_MS milliseconds later.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

extern "C" int fdatasync(int descriptor) {
  static std::atomic<bool> slow = true;
  const char* rank = std::getenv("RANK");
  const char* milliseconds = std::getenv("SLOW_DISK_MS");
  if (rank && milliseconds && std::strcmp(rank, "0") == 0 && slow.exchange(false))
    usleep(static_cast<useconds_t>(1000 * std::atoi(milliseconds)));
  return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}
