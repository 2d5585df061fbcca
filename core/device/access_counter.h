// What kernels ask of the memory, counted where a device is emulated and its kernels report each of
// their accesses: how a GPU's profiler counts them, without a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ringgrad {

// The loads or the stores of one kind of memory, by one line of the source or by all of them.
//
// A request is what a warp's 32 threads ask for with one instruction. Global memory answers in
// sectors of 32 bytes, so 32 neighbouring floats are 4 of them, and 32 distant ones 32. Shared
// memory has 32 banks of 4 bytes, and gives one word of each in a pass: words of one bank that
// differ take a pass each, which is a bank conflict.
struct AccessCount {
  // "matmul.cu:42"; "" where it is all of them.
  std::string line;
  bool shared = false;
  bool write = false;
  int64_t requests = 0;
  int64_t bytes = 0;
  // Global memory's.
  int64_t sectors = 0;
  // Shared memory's; the least is what as many words need without conflicts.
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
  // By line of the source, kind and direction; in their order.
  std::vector<AccessCount> accesses;
  // Instructions of a warp, or of a block for __syncthreads: how often, by their names.
  std::map<std::string, int64_t> instructions;

  // All accesses of a kind together.
  AccessCount total(bool shared, bool write) const {
    AccessCount sum{.line = "", .shared = shared, .write = write};
    for (const AccessCount& count : accesses)
      if (count.shared == shared && count.write == write) sum.add(count);
    return sum;
  }
};

// Runs `body`, which queues kernels and waits for them, and returns what they did. nullptr where no
// kernel of this program reports its accesses; set before main() begins, and left alone. One call
// at a time.
using AccessCounter = KernelCounts (*)(const std::function<void()>& body);
inline constinit AccessCounter count_accesses = nullptr;

}  // namespace ringgrad
