#include "ringgrad/cuda_kernels/emulator/block.h"

#include <bit>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

Block::Block() { fibers_.reserve(kMaxThreads); }
Block::~Block() = default;

Block& Block::mine() {
  thread_local Block block;
  return block;
}

void Block::set_shape(dim3 block) {
  const unsigned count = block.x * block.y * block.z;
  threads_.resize(count);
  uint3 index{0, 0, 0};
  for (Thread& thread : threads_) {
    thread.index = index;
    if (++index.x < block.x) continue;
    index.x = 0;
    if (++index.y < block.y) continue;
    index.y = 0;
    ++index.z;
  }
}

void Block::begin(const Grid& grid, int64_t index) {
  grid_ = &grid;
  running_block = this;
  const dim3 shape = grid.block;
  const unsigned count = shape.x * shape.y * shape.z;
  if (threads_.size() != count || blockDim.x != shape.x || blockDim.y != shape.y) set_shape(shape);
  blockDim = shape;
  gridDim = grid.grid;
  const auto plane = static_cast<int64_t>(grid.grid.x) * grid.grid.y;
  blockIdx = {static_cast<unsigned>(index % grid.grid.x),
              static_cast<unsigned>(index % plane / grid.grid.x),
              static_cast<unsigned>(index / plane)};
  shared_.begin_block(grid.shared_bytes);

  ready_warps_ = 0;
  for (unsigned first = 0, warp = 0; first < count; first += kWarpSize, ++warp) {
    Warp& w = warps_[warp];
    const unsigned lanes = std::min(count - first, unsigned{kWarpSize});
    w.lanes = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    w.started = w.at_barrier = w.exited = w.ready = 0;
    w.arrived_groups = 0;
    make_ready(static_cast<int>(warp), w.lanes);
  }
  waiting_at_barrier_ = exited_ = 0;
  schedule_ = config().schedule;
  // Each block gets its own order, and the same order on every thread.
  if (schedule_ == Schedule::Random)
    random_.seed(config().schedule_seed + static_cast<uint32_t>(index));
  warp_ = choose(ready_warps_);
  if (observer) observer->begin_block(*this, index);
  observing = observer != nullptr;
}

void Block::end() {
  observing = false;
  running_block = nullptr;
  if (observer) observer->end_block();
}

void Block::run(const Grid& grid, int64_t index) {
  begin(grid, index);
  try {
    const int next = host(pick());
    // A thread that has its own stack continues there. The last one to exit switches back to this
    // stack.
    if (next != kNone)
      continue_with(next);
    else
      expect_all_exited();
  } catch (...) {
    recover();
    end();
    throw;
  }
  end();
}

// ---- scheduling ---------------------------------------------------------------------------------

int Block::choose(uint32_t set) {
  switch (schedule_) {
    case Schedule::Forward: return std::countr_zero(set);
    case Schedule::Reversed: return 31 - std::countl_zero(set);
    case Schedule::Random: break;
  }
  for (auto skip = random_() % static_cast<unsigned>(std::popcount(set)); skip > 0; --skip)
    set &= set - 1;
  return std::countr_zero(set);
}

void Block::make_ready(int warp, uint32_t lanes) {
  warps_[warp].ready |= lanes;
  ready_warps_ |= 1u << warp;
}

int Block::pick() {
  if (ready_warps_ == 0) return kNone;
  // A warp runs ahead: another one is chosen only if this one can do nothing more.
  if (!(ready_warps_ >> warp_ & 1) || schedule_ == Schedule::Random) warp_ = choose(ready_warps_);
  Warp& warp = warps_[warp_];
  const int lane = choose(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << warp_);
  return warp_ * kWarpSize + lane;
}

void Block::make_current(int thread) {
  current_ = thread;
  threadIdx = threads_[thread].index;
}

int Block::host(int thread) {
  do {
    warps_[thread / kWarpSize].started |= 1u << (thread % kWarpSize);
    threads_[thread].fiber = running_;
    make_current(thread);
    grid_->body(grid_->arguments);
    exit_current();
    thread = pick();
  } while (thread != kNone && !started(thread));
  return thread;
}

void Block::exit_current() {
  // `thread` may not be used here: the stack may have been parked and continued meanwhile, but
  // always for the same CUDA thread.
  Thread& thread = threads_[current_];
  if (thread.copies.in_flight())
    fail({}, "a thread exits with cp.async copies in flight: their data is never used");
  thread.copies.clear();
  const int warp = current_ / kWarpSize;
  warps_[warp].exited |= 1u << lane();
  ++exited_;
  // Other threads may have waited for this thread alone.
  for (uint32_t groups = warps_[warp].arrived_groups; groups; groups &= groups - 1)
    complete(warp, warps_[warp].rendezvous[std::countr_zero(groups)]);
  open_barrier_if_complete();
}

void Block::suspend() {
  const int me = current_;
  const int next = pick();
  if (next == kNone) expect_all_exited();  // at least this thread has not exited
  if (next != me) continue_with(next);
  make_current(me);
}

// ---- stacks -------------------------------------------------------------------------------------

void Block::continue_with(int thread) {
  if (started(thread)) return switch_stack(*threads_[thread].fiber);
  if (idle_.empty()) {
    const auto entry = [](void* self) { static_cast<Block*>(self)->fiber_main(); };
    fibers_.push_back(std::make_unique<Fiber>(config().stack_bytes, entry, this));
    idle_.push_back(fibers_.back().get());
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  handed_over_ = thread;
  switch_stack(*fiber);
}

void Block::switch_stack(Fiber& to) {
  Fiber* from = running_;
  running_ = &to;
  from->switch_to(to);
  running_ = from;
  // The launching stack is continued early only to report an error; that unwinds the CUDA thread it
  // has, if any.
  if (error_ && running_ == &root_) std::rethrow_exception(error_);
}

void Block::fiber_main() {
  for (;;) {
    int next = kNone;
    try {
      next = host(handed_over_);
      if (next == kNone) expect_all_exited();
    } catch (...) {
      error_ = std::current_exception();
    }
    // Outside the handler, because an exception being handled belongs to the stack that handles it.
    idle_.push_back(running_);
    switch_stack(error_ || next == kNone ? root_ : *threads_[next].fiber);
  }
}

// After an error, forgets the stacks of the threads that still wait. They own nothing.
void Block::recover() {
  error_ = nullptr;
  running_ = &root_;
  for (Thread& thread : threads_) thread.copies.clear();
  idle_.clear();
  for (auto& fiber : fibers_) {
    fiber->abandon();
    idle_.push_back(fiber.get());
  }
}

}  // namespace ringgrad::emulator
