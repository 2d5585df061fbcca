// Counts the memory accesses of kernels as a GPU's profiler does, but without a GPU. An emulated
// device counts them, and its kernels report each access.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ringgrad {

// The loads or the stores of one kind of memory, for one line of the source or for all lines.
//
// A request is what a warp's 32 threads ask for with one instruction. Global memory answers in
// sectors of 32 bytes: 32 neighbouring floats take 4 sectors, and 32 distant ones take 32. Shared
// memory has 32 banks of 4 bytes and gives one word of each bank in a pass. Different words of one
// bank need one pass each; this is a bank conflict.
struct AccessCount {
  // "matmul.cu:42", or "" for all lines together.
  std::string line;
  bool shared = false;
  bool write = false;
  int64_t requests = 0;
  int64_t bytes = 0;
  // For global memory only.
  int64_t sectors = 0;
  // For shared memory only. least_passes is the number of passes for as many words without
  // conflicts.
  int64_t passes = 0;
  int64_t least_passes = 0;

  void add(const AccessCount& other) {
    requests += other.requests;
    bytes += other.bytes;
    sectors += other.sectors;
    passes += other.passes;
    least_passes += other.least_passes;
  }
};

struct KernelCounts {
  int64_t launches = 0;
  int64_t blocks = 0;
  int64_t threads = 0;
  // Sorted by line of the source, kind and direction.
  std::vector<AccessCount> accesses;
  // Maps the name of an instruction to the number of times it ran. A warp counts once, and
  // __syncthreads once for a block.
  std::map<std::string, int64_t> instructions;

  // Returns the sum of all accesses of one kind.
  AccessCount total(bool shared, bool write) const {
    AccessCount sum{.line = "", .shared = shared, .write = write};
    for (const AccessCount& count : accesses)
      if (count.shared == shared && count.write == write) sum.add(count);
    return sum;
  }
};

// Runs `body`, which queues kernels and waits for them, and returns their counts. It is nullptr if
// no kernel of this program reports its accesses. It is set before main() begins and never changes
// afterwards. REQUIRES: one call at a time.
using AccessCounter = KernelCounts (*)(const std::function<void()>& body);
inline constinit AccessCounter count_accesses = nullptr;

}  // namespace ringgrad
