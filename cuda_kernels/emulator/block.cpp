#include "ringgrad/cuda_kernels/emulator/block.h"

#include <bit>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

Block::Block() { fibers_.reserve(kMaxThreads); }
Block::~Block() = default;

Block& Block::mine() {
  thread_local Block block;
  return block;
}

void Block::set_shape(dim3 block, int members) {
  threads_per_member_ = static_cast<int>(block.x * block.y * block.z);
  stride_ = (threads_per_member_ + kWarpSize - 1) / kWarpSize * kWarpSize;
  members_.resize(static_cast<size_t>(members));
  warps_.resize(static_cast<size_t>(members * stride_ / kWarpSize));
  threads_.resize(static_cast<size_t>(members * stride_));
  uint3 index{0, 0, 0};
  for (size_t t = 0; t < threads_.size(); ++t) {
    if (t % static_cast<size_t>(stride_) == 0) index = {0, 0, 0};
    threads_[t].index = index;
    if (++index.x < block.x) continue;
    index.x = 0;
    if (++index.y < block.y) continue;
    index.y = 0;
    ++index.z;
  }
}

void Block::begin_member(int number, const Grid& grid, int64_t cluster) {
  Member& member = members_[static_cast<size_t>(number)];
  const dim3 size = grid.cluster;
  const dim3 clusters(grid.grid.x / size.x, grid.grid.y / size.y, grid.grid.z / size.z);
  const auto plane = static_cast<int64_t>(clusters.x) * clusters.y;
  const auto rank = static_cast<unsigned>(number);
  member.index = {
      static_cast<unsigned>(cluster % clusters.x) * size.x + rank % size.x,
      static_cast<unsigned>(cluster % plane / clusters.x) * size.y + rank / size.x % size.y,
      static_cast<unsigned>(cluster / plane) * size.z + rank / (size.x * size.y)};
  member.shared.begin_block(grid.shared_bytes);
  member.exited = 0;
  member.registers.fill(0);
  member.free_registers = 0;
  for (int first = 0, warp = 0; first < threads_per_member_; first += kWarpSize, ++warp) {
    const int of_cluster = number * stride_ / kWarpSize + warp;
    Warp& w = warps_[static_cast<size_t>(of_cluster)];
    const int lanes = std::min(threads_per_member_ - first, kWarpSize);
    w.lanes = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    w.started = w.exited = w.ready = 0;
    w.arrived_groups = 0;
    make_ready(of_cluster, w.lanes);
  }
}

void Block::begin(const Grid& grid, int64_t index) {
  grid_ = &grid;
  running_block = this;
  const dim3 shape = grid.block;
  if (threads_per_member_ != grid.threads() || members() != grid.cluster_blocks() ||
      blockDim.x != shape.x || blockDim.y != shape.y)
    set_shape(shape, grid.cluster_blocks());
  blockDim = shape;
  gridDim = grid.grid;
  ready_warps_.fill(0);
  ready_members_ = 0;
  exited_ = 0;
  for (int member = 0; member < members(); ++member) begin_member(member, grid, index);
  make_current(0);
  blockIdx = members_[0].index;
  schedule_ = config().schedule;
  // Each block gets its own order, and the same order on every thread.
  random_.seed(config().schedule_seed + static_cast<uint32_t>(index));
  async_.begin();
  warp_ = choose_warp();
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
    async_.end();
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
  const int member = warp * kWarpSize / stride_;
  warps_[static_cast<size_t>(warp)].ready |= lanes;
  ready_warps_[static_cast<size_t>(member)] |= 1u << (warp - member * stride_ / kWarpSize);
  ready_members_ |= 1u << member;
}

// REQUIRES: a thread is ready.
int Block::choose_warp() {
  const int member = choose(ready_members_);
  return member * stride_ / kWarpSize + choose(ready_warps_[static_cast<size_t>(member)]);
}

int Block::pick() {
  constexpr unsigned kSeldom = 4;
  if (schedule_ == Schedule::Random && async_.busy() && random_() % kSeldom == 0) async_.advance();
  while (ready_members_ == 0)
    if (!async_.advance()) return kNone;
  // A warp runs ahead: another one is chosen only if this one can do nothing more.
  if (warps_[static_cast<size_t>(warp_)].ready == 0 || schedule_ == Schedule::Random)
    warp_ = choose_warp();
  Warp& warp = warps_[static_cast<size_t>(warp_)];
  const int lane = choose(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) {
    const int member = warp_ * kWarpSize / stride_;
    uint32_t& warps = ready_warps_[static_cast<size_t>(member)];
    warps &= ~(1u << (warp_ - member * stride_ / kWarpSize));
    if (warps == 0) ready_members_ &= ~(1u << member);
  }
  return warp_ * kWarpSize + lane;
}

void Block::make_current(int thread) {
  current_ = thread;
  threadIdx = threads_[static_cast<size_t>(thread)].index;
  const int member = members() == 1 ? 0 : thread / stride_;
  if (member == member_) return;
  member_ = member;
  blockIdx = members_[static_cast<size_t>(member)].index;
}

int Block::host(int thread) {
  do {
    warps_[thread / kWarpSize].started |= 1u << (thread % kWarpSize);
    threads_[thread].fiber = running_;
    make_current(thread);
    observing = observer != nullptr;
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
  async_.exit_thread();
  const int warp = current_ / kWarpSize;
  warps_[warp].exited |= 1u << lane();
  ++exited_;
  ++members_[static_cast<size_t>(member_)].exited;
  // Other threads may have waited for this thread alone.
  for (uint32_t groups = warps_[warp].arrived_groups; groups; groups &= groups - 1)
    complete(warp, warps_[warp].rendezvous[std::countr_zero(groups)]);
  open_if_complete(member_, 0);
  if (members() > 1) open_cluster_if_complete();
  if (!exited(member_)) return;
  for (const Barrier& barrier : members_[static_cast<size_t>(member_)].barriers)
    if (barrier.arrived > 0)
      fail({}, str("the block exits, and ", barrier.arrived, " of ", barrier.threads,
                   " threads have arrived at barrier ",
                   &barrier - members_[static_cast<size_t>(member_)].barriers.data()));
  async_.exit_member();
  if (members() > 1 && grid_->shared_bytes > 0)
    members_[static_cast<size_t>(member_)].shared.end_block(grid_->shared_bytes);
}

void Block::suspend() {
  const int me = current_;
  const int next = pick();
  if (next == kNone) expect_all_exited();  // at least this thread has not exited
  if (next != me) continue_with(next);
  make_current(me);
  observing = observer != nullptr;
}

// (Not inline: a kernel would report what they read.)
void* Block::dynamic_shared(int member) const {
  return members_[static_cast<size_t>(member)].shared.data();
}
void* Block::dynamic_shared() const { return dynamic_shared(member_); }

void Block::park(const char* kind, const void* object, Site site) {
  Thread& thread = threads_[static_cast<size_t>(current_)];
  thread.waits_at = site;
  thread.waits_in = kind;
  thread.waits_on = object;
  suspend();
}

void Block::yield() {
  async_.advance();
  if (ready_members_ == 0) return;
  // Any other thread, whatever the schedule: two that wait for a third must not alternate forever.
  const Schedule before = std::exchange(schedule_, Schedule::Random);
  const int me = current_;
  const int next = pick();
  schedule_ = before;
  wake(me);
  continue_with(next);
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
  for (Member& member : members_) member.barriers.fill({});
  cluster_arrived_.clear();
  cluster_waiting_.clear();
  cluster_count_ = 0;
  idle_.clear();
  for (auto& fiber : fibers_) {
    fiber->abandon();
    idle_.push_back(fiber.get());
  }
}

}  // namespace ringgrad::emulator
