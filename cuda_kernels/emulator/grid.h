// What the parts of the emulator say about a launch: the grid, a place in a kernel's source, an
// access to memory, and the observer that is told of each.
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

// A launch: every block of it runs body(arguments) once per CUDA thread.
struct Grid {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  void (*body)(const void* arguments);
  const void* arguments;
  size_t argument_bytes;
};

// A place in a kernel's source, for reports. Intrinsics take one as a defaulted last argument, so
// that it names the line which called them.
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

// Whether an access is cp.async's, whose write is told twice: when it starts, and when it is waited
// for.
enum class AsyncCopy : uint8_t { None, Started, Landed };

struct Access {
  const void* address;
  size_t bytes;
  bool write;
  bool atomic;
  const void* pc;  // where in the program
  AsyncCopy async = AsyncCopy::None;
  bool aligned = false;  // the instruction wants an address that is a multiple of `bytes`
};

class Block;

// Watches the accesses of kernels to memory: the checker and the profiler of emulator/check, in
// programs whose kernels report them (RINGGRAD_EMU_CHECK). Other programs have none, and pay one
// comparison at each barrier.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_launch(const Grid& grid, int device) = 0;
  virtual void end_launch() = 0;  // throws CudaError with what was found
  virtual void begin_block(const Block& block, int64_t index) = 0;
  virtual void end_block() = 0;
  virtual void block_barrier() = 0;
  // __syncwarp of all the warp's lanes.
  virtual void warp_barrier(int warp) = 0;
  // A warp's instruction that its lanes execute together: "ldmatrix".
  virtual void collective(const char* kind) = 0;
  // __threadfence by the CUDA thread that runs.
  virtual void fence() = 0;
  // By that thread, likewise.
  virtual void access(const Access& access) = 0;
};

// While there is one, launches run their blocks one after another on the calling thread, and one at
// a time.
inline constinit Observer* observer = nullptr;
// Whether the calling thread is running kernel code that the observer watches.
inline constinit thread_local bool observing = false;

}  // namespace ringgrad::emulator
