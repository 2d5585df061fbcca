#include "ringgrad/cuda_kernels/emulator/check/checker.h"

#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"
#include "ringgrad/cuda_kernels/emulator/shared_memory.h"

namespace ringgrad::emulator {
namespace {

constexpr int kListed = 4;  // reports in an error; the others are counted

}  // namespace

void Checker::begin_launch(const Grid& grid, int device) {
  grid_ = &grid;
  device_ = device;
  ++launch_;
  static_bytes_ = 0;
  known_begin_ = known_end_ = 0;
  released_.clear();
  found_ = 0;
  reports_.clear();
  reported_.clear();
}

// A device adds static and dynamic shared memory. launch() cannot: it does not know the former.
void Checker::end_launch() {
  const size_t dynamic = grid_->shared_bytes;
  const size_t most = dynamic > kSharedBytesUnasked ? kMaxSharedBytes : kSharedBytesUnasked;
  if (dynamic + static_bytes_ > most && ++found_)
    reports_ += str("\n  ", static_bytes_, " bytes of static and ", dynamic,
                    " of dynamic shared memory, expected at most ", most);
  if (found_ > 0) throw CudaError(str("memory check: ", found_, " problems", reports_));
}

void Checker::begin_cluster(int64_t index, int threads) {
  cluster_ = index;
  order_.begin(threads);
  fences_.assign(static_cast<size_t>(grid_->cluster_blocks()), {});
  waited_.assign(static_cast<size_t>(threads), false);
}

void Checker::fence() {
  Fences& fences = fences_[static_cast<size_t>(running_block->member())];
  if (fences.told)
    fences.acquired = true;
  else
    fences.before = order_.publish(running_block->thread_of_cluster());
}

void Checker::wait_for_previous_launch() {
  waited_[static_cast<size_t>(running_block->thread_of_cluster())] = true;
}

int Checker::thread_of(const Access& access) {
  return access.thread < 0 ? running_block->thread_of_cluster() : access.thread;
}

void Checker::access(const Access& access, Memory memory) {
  if (access.aligned && reinterpret_cast<uintptr_t>(access.address) % access.bytes != 0)
    report(access, str("an address that is no multiple of ", access.bytes), nullptr);
  if (memory == Memory::Global) check_bounds(access);
  if (memory == Memory::Shared && running_block->members() > 1) check_shared(access);
  if (memory == Memory::Global && access.atomic) {
    Fences& fences = fences_[static_cast<size_t>(running_block->member())];
    if (fences.before && !fences.told) released_[cluster_].push_back(fences.before);
    fences.told = true;
  }
  check_races(access, memory);
}

// The blocks of a cluster run on one thread, whose static shared memory is one.
void Checker::check_shared(const Access& access) {
  const int member = running_block->async().member_of(access.address);
  if (member < 0)
    report(access, "static shared memory in a cluster: the emulator has it once for all blocks",
           nullptr);
  else if (running_block->exited(member))
    report(access, str("shared memory of block ", member, " of the cluster, which has exited"),
           nullptr);
}

// Programmatic launch: the launch before may not have ended yet.
void Checker::check_previous_launch(const Access& access, const Word& word) {
  if (!grid_->overlaps || word.launch + 1 != launch_ ||
      waited_[static_cast<size_t>(thread_of(access) % static_cast<int>(waited_.size()))])
    return;
  if (word.write.pc)
    report(access, "memory that the launch before writes: wait_for_previous_launch is missing",
           &word.write);
  else if (access.write && word.read.pc)
    report(access, "memory that the launch before reads: wait_for_previous_launch is missing",
           &word.read);
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

bool Checker::ordered(const Trace& earlier, int thread, Memory memory) const {
  if (!earlier.pc) return true;
  if (earlier.cluster == cluster_) return order_.knows(thread, earlier.thread, earlier.clock);
  if (memory == Memory::Shared) return true;  // each cluster has its own shared memory
  const auto released = released_.find(earlier.cluster);
  return fences_[static_cast<size_t>(running_block->member())].acquired &&
         released != released_.end() &&
         std::any_of(released->second.begin(), released->second.end(), [&](const auto& snapshot) {
           return Order::covers(*snapshot, earlier.thread, earlier.clock);
         });
}

void Checker::check_races(const Access& access, Memory memory) {
  const int thread = thread_of(access);
  const int owner = access.barrier ? order_.copies_of(access.barrier) : thread;
  const auto begin = reinterpret_cast<uintptr_t>(access.address);
  const auto end = begin + access.bytes;
  for (uintptr_t word_begin = begin & ~uintptr_t{3}; word_begin < end; word_begin += 4) {
    uint8_t bytes = 0;
    for (uintptr_t i = 0; i < 4; ++i)
      if (word_begin + i >= begin && word_begin + i < end) bytes |= static_cast<uint8_t>(1u << i);
    const Trace now{access.site.line ? access.site.file : access.pc,
                    access.site.line,
                    cluster_,
                    owner,
                    order_.clock(owner),
                    bytes,
                    access.atomic};
    Word& word = shadow_.word(word_begin);
    if (word.launch != launch_) {
      if (memory == Memory::Global)
        check_previous_launch(access, word);
      else if (running_block->async().member_of(access.address) < 0)
        static_bytes_ += sizeof(uint32_t);
      word = Word{.launch = launch_, .write = {}, .read = {}};
    }
    const auto races = [&](const Trace& earlier) {
      return (earlier.bytes & bytes) && !(access.atomic && earlier.atomic) &&
             !ordered(earlier, thread, memory);
    };
    const char* kind = memory == Memory::Shared ? "shared" : "global";
    // (A product may read columns for nothing.)
    if (memory == Memory::Shared && !access.write && access.thread < 0 &&
        (!word.write.pc || word.write.cluster != cluster_))
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
    else if (ordered(word.read, thread, memory))
      word.read = now;
  }
}

void Checker::report(const Access& access, const std::string& problem, const Trace* other) {
  const auto line = [](const void* pc, int number) {
    return number ? Site{static_cast<const char*>(pc), number}.text() : source_line(pc);
  };
  const void* pc = access.site.line ? access.site.file : access.pc;
  const auto* place = static_cast<const char*>(pc) + access.site.line;
  const void* other_place = other ? static_cast<const char*>(other->pc) + other->line : nullptr;
  if (!reported_.insert({place, other_place}).second || ++found_ > kListed) return;
  const uint3 t = threadIdx;
  const uint3 b = blockIdx;
  reports_ += str("\n  ", line(pc, access.site.line), ": ", access.write ? "write" : "read", " of ",
                  access.bytes, " bytes by block (", b.x, ", ", b.y, ", ", b.z, "), thread (", t.x,
                  ", ", t.y, ", ", t.z, "): ", problem);
  if (other)
    reports_ += str("; the other access is at ", line(other->pc, other->line), " by thread ",
                    other->thread, " of block ", other->cluster);
}

}  // namespace ringgrad::emulator
