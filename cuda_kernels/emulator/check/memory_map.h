// What kind of memory an address of a kernel is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringgrad::emulator {

class Block;
struct Grid;

enum class Memory : uint8_t {
  Private,  // stacks, arguments, built-in variables, constants: nothing that threads share
  Shared,
  Global,
};

class MemoryMap {
 public:
  // Looks at the calling thread's stack and thread-local memory, which is where static shared memory is.
  void begin_block(const Grid& grid, const Block& block);
  Memory find(const void* address) const;

 private:
  struct Range {
    uintptr_t begin, end;
    Memory memory;
  };
  void add(const void* begin, size_t bytes, Memory memory);
  std::vector<Range> ranges_;  // the first that contains an address counts
  const Block* block_ = nullptr;
};

}  // namespace ringgrad::emulator
