// Classifies an address in a kernel: the kind of memory that contains it, or the source line that
// it comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringgrad::emulator {

class Block;
struct Grid;

enum class Memory : uint8_t {
  Private,  // stacks, arguments, built-in variables, constants: memory that threads do not share
  Shared,
  Global,
};

class MemoryMap {
 public:
  // Call on the thread that runs the block: its thread-local memory contains static shared memory.
  // `grid` is on its stack.
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
  // The first range that contains an address counts. The arguments and the blocks' dynamic shared
  // memory belong to the launch, the others to the thread.
  std::vector<Range> ranges_;
  const Block* block_ = nullptr;
};

// Returns the line that an instruction comes from: "softmax.cu:42", or "function + 0x1f" if debug
// information or addr2line is missing. `pc` is a return address.
std::string source_line(const void* pc);
// Returns the lines in the kernels themselves that called what was inlined at these places, all in
// one query.
std::vector<std::string> source_lines(const std::vector<const void*>& pcs);

}  // namespace ringgrad::emulator
