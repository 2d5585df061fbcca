// The types by which the emulator describes a launch: the grid, a place in a kernel's source, a
// memory access, and the observer that is notified of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

// CUDA's built-in types.
struct uint3 {
  unsigned x;
  unsigned y;
  unsigned z;
};
struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace ringgrad::emulator {

// A launch. Every block runs body(arguments) once per CUDA thread.
struct Grid {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  void (*body)(const void* arguments);
  const void* arguments;
  size_t argument_bytes;
  // The blocks of a cluster, which run together. The grid is a multiple of it.
  dim3 cluster = {};
  // True: blocks may begin before the launch before has ended (programmatic launch).
  bool overlaps = false;

  int64_t blocks() const { return int64_t{grid.x} * grid.y * grid.z; }
  int cluster_blocks() const { return static_cast<int>(cluster.x * cluster.y * cluster.z); }
  int64_t clusters() const { return blocks() / cluster_blocks(); }
  int threads() const { return static_cast<int>(block.x * block.y * block.z); }
};

// A place in a kernel's source, for reports. Intrinsics take one as a defaulted last argument, so
// that it names the line of the call.
struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Site& other) const {
    return line == other.line && std::strcmp(file, other.file) == 0;
  }

  std::string text() const {  // softmax.cu:42
    const char* slash = std::strrchr(file, '/');
    return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
  }
};

// Marks an access of cp.async. Its write is reported twice: when it starts, and when it is waited
// for.
enum class AsyncCopy : uint8_t { None, Started, Landed };

struct Access {
  const void* address;
  size_t bytes;
  bool write;
  bool atomic;
  const void* pc;  // place in the program
  AsyncCopy async = AsyncCopy::None;
  bool aligned = false;  // the instruction requires an address that is a multiple of `bytes`
  // For what the asynchronous units do: the place of the call, and the thread that has started it.
  Site site = {};
  int thread = -1;  // -1: the running thread
  // A copy that lands: the mbarrier on which it arrives. What it writes belongs to nobody before.
  const void* barrier = nullptr;
};

class Block;

// Observes the memory accesses of kernels: the checker and the profiler of emulator/check, in
// programs whose kernels report them (RINGGRAD_EMU_CHECK). Other programs have no observer and pay
// one comparison at each barrier.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_launch(const Grid& grid, int device) = 0;
  virtual void end_launch() = 0;  // throws CudaError with the problems found
  virtual void begin_block(const Block& block, int64_t index) = 0;
  virtual void end_block() = 0;
  // A thread of the cluster arrives at a barrier of any kind, which opens later, and passes it
  // after that. What comes before an arrival is ordered before what comes after a pass.
  virtual void arrive(const void* barrier, int thread) = 0;
  virtual void open(const void* barrier) = 0;
  virtual void pass(const void* barrier, int thread) = 0;
  // Adds to a count of the profile: the instruction that a warp's lanes execute together, or what
  // it costs: "shared bytes".
  virtual void count(const char* kind, int64_t amount) = 0;
  // The running CUDA thread calls __threadfence.
  virtual void fence() = 0;
  // The running CUDA thread has waited for the launch before, with which this one may overlap.
  virtual void wait_for_previous_launch() = 0;
  // The running CUDA thread accesses memory.
  virtual void access(const Access& access) = 0;
};

// If there is one, launches run one at a time, and their blocks run one after another on the
// calling thread.
inline constinit Observer* observer = nullptr;
// True while the calling thread runs kernel code that is observed.
inline constinit thread_local bool observing = false;

}  // namespace ringgrad::emulator
