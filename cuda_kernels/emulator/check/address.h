// What an address in a kernel means: the kind of memory it is in, or the source line it comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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
  // Of the calling thread, whose block it is: its thread-local memory is where static shared memory
  // lies. `grid` is on its stack.
  void begin_block(const Grid& grid, const Block& block);
  Memory find(const void* address) const;

 private:
  struct Range {
    uintptr_t begin;
    uintptr_t end;
    Memory memory;
  };
  void look_at_thread(const Block& block);
  void add(const void* begin, size_t bytes, Memory memory);
  // The first that contains an address counts. Two belong to the launch, the others to the thread.
  std::vector<Range> ranges_;
  const Block* block_ = nullptr;
};

// The line that an instruction comes from: "softmax.cu:42", or "function + 0x1f" where debug
// information or addr2line are missing. `pc` is a return address.
std::string source_line(const void* pc);
// The lines of the kernels themselves which have called what is inlined there, asked for all at
// once.
std::vector<std::string> source_lines(const std::vector<const void*>& pcs);

}  // namespace ringgrad::emulator
