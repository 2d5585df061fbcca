#include "ringgrad/cuda_kernels/emulator/check/checker.h"

#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {
namespace {

constexpr int kListed = 4;  // reports in an error; the others are counted

}  // namespace

void Checker::begin_launch(int device) {
  device_ = device;
  ++launch_;
  known_begin_ = known_end_ = 0;
  released_.clear();
  found_ = 0;
  reports_.clear();
  reported_.clear();
}

void Checker::end_launch() {
  if (found_ > 0) throw CudaError(str("memory check: ", found_, " problems", reports_));
}

void Checker::begin_block(int64_t index) {
  block_ = index;
  barrier_ = 0;
  fenced_ = told_ = acquired_ = false;
  std::fill(std::begin(warp_barriers_), std::end(warp_barriers_), 0);
}

void Checker::fence() {
  if (told_) {
    acquired_ = true;
  } else {
    fenced_ = true;
    fenced_at_ = barrier_;
  }
}

void Checker::access(const Access& access, Memory memory) {
  if (access.aligned && reinterpret_cast<uintptr_t>(access.address) % access.bytes != 0)
    report(access, str("an address that is no multiple of ", access.bytes), nullptr);
  if (memory == Memory::Global) check_bounds(access);
  if (memory == Memory::Global && access.atomic) {
    if (fenced_) released_.try_emplace(block_, fenced_at_);
    told_ = true;
  }
  check_races(access, memory);
}

void Checker::check_bounds(const Access& access) {
  const auto begin = reinterpret_cast<uintptr_t>(access.address);
  const auto end = begin + access.bytes;
  if (begin >= known_begin_ && end <= known_end_) return;
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  uintptr_t first = 0;
  const Allocation* allocation = runtime.find(access.address, &first);
  if (!allocation) return report(access, "memory that no allocation contains", nullptr);
  if (end > first + allocation->bytes)
    return report(
        access,
        str(end - first - allocation->bytes, " bytes beyond an allocation of ", allocation->bytes),
        nullptr);
  if (allocation->device != device_)
    return report(access,
                  str("memory of device ", allocation->device, " by device ", device_,
                      " without peer access"),
                  nullptr);
  known_begin_ = first;
  known_end_ = first + allocation->bytes;
}

bool Checker::ordered(const Trace& earlier, Memory memory) const {
  if (!earlier.pc) return true;
  if (earlier.block != block_) {
    if (memory == Memory::Shared) return true;  // each block has its own shared memory
    const auto released = released_.find(earlier.block);
    return acquired_ && released != released_.end() && earlier.barrier < released->second;
  }
  const auto thread = static_cast<uint32_t>(running_block->thread());
  const uint32_t warp = thread / kWarpSize;
  return earlier.thread == thread || earlier.barrier < barrier_ ||
         (earlier.thread / kWarpSize == warp && earlier.warp_barrier < warp_barriers_[warp]);
}

void Checker::check_races(const Access& access, Memory memory) {
  const auto thread = static_cast<uint32_t>(running_block->thread());
  const auto begin = reinterpret_cast<uintptr_t>(access.address);
  const auto end = begin + access.bytes;
  for (uintptr_t word_begin = begin & ~uintptr_t{3}; word_begin < end; word_begin += 4) {
    uint8_t bytes = 0;
    for (uintptr_t i = 0; i < 4; ++i)
      if (word_begin + i >= begin && word_begin + i < end) bytes |= static_cast<uint8_t>(1u << i);
    const Trace now{access.pc, block_,       thread, barrier_, warp_barriers_[thread / kWarpSize],
                    bytes,     access.atomic};
    Word& word = shadow_.word(word_begin, launch_);
    const auto races = [&](const Trace& earlier) {
      return (earlier.bytes & bytes) && !(access.atomic && earlier.atomic) &&
             !ordered(earlier, memory);
    };
    const char* kind = memory == Memory::Shared ? "shared" : "global";
    if (memory == Memory::Shared && !access.write && (!word.write.pc || word.write.block != block_))
      report(access, "shared memory that the block has not written", nullptr);
    if (races(word.write))
      report(access,
             str("race in ", kind,
                 " memory: ", access.write ? "write after write" : "read after write"),
             &word.write);
    if (access.write && races(word.read))
      report(access, str("race in ", kind, " memory: write after read"), &word.read);
    // The first of several unordered readers is kept; any of them would do.
    if (access.write)
      word.write = now;
    else if (ordered(word.read, memory))
      word.read = now;
  }
}

void Checker::report(const Access& access, const std::string& problem, const Trace* other) {
  if (!reported_.insert({access.pc, other ? other->pc : nullptr}).second || ++found_ > kListed)
    return;
  const uint3 t = threadIdx;
  const uint3 b = blockIdx;
  reports_ += str("\n  ", source_line(access.pc), ": ", access.write ? "write" : "read", " of ",
                  access.bytes, " bytes by block (", b.x, ", ", b.y, ", ", b.z, "), thread (", t.x,
                  ", ", t.y, ", ", t.z, "): ", problem);
  if (other)
    reports_ += str("; the other access is at ", source_line(other->pc), " by thread ",
                    other->thread, " of block ", other->block);
}

}  // namespace ringgrad::emulator
