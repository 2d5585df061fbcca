#include "ringgrad/core/cpu/amx/tile_unit.h"

#include <atomic>
#include <cerrno>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ringgrad::amx {
namespace {

#if defined(__x86_64__) && defined(__linux__)
// Three must agree: the processor, the kernel (which must save tiles when it switches threads), and
// this process. The process asks once for the memory that saving takes; threads and children
// inherit the permission.
std::string obstacle() {
  constexpr unsigned kAmxBf16 = 1u << 22;
  constexpr unsigned kAmxTile = 1u << 24;
  constexpr unsigned kOsXsave = 1u << 27;
  constexpr unsigned kTileState = 3u << 17;
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kAmxBf16) || !(d & kAmxTile))
    return "the processor has none";
  __get_cpuid(1, &a, &b, &c, &d);
  uint32_t low = 0;
  uint32_t high = 0;
  if (c & kOsXsave) asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return "the kernel does not save them";
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return "";
  return errno == ENOSPC ? "a signal stack of this process is too small for their state"
                         : "the kernel refuses them";
}
#else
std::string obstacle() { return "the processor has none"; }
#endif

// This is asked when the program starts, because a signal stack installed later may be too small
// for the permission to be granted.
const std::string why_not = obstacle();
std::atomic<Tiles> in_use{why_not.empty() ? Tiles::Hardware : Tiles::None};

}  // namespace

Tiles tiles() { return in_use; }
void use_tiles(Tiles tiles) { in_use = tiles; }
const std::string& why_no_tiles() { return why_not; }

}  // namespace ringgrad::amx
