// The events for which the threads of a block wait: the block's barrier and warp collectives. Also
// reports events that can never come.
#include <atomic>
#include <bit>
#include <map>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/emulator/language.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {
namespace {

std::string hex(uint32_t mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

}  // namespace

void Block::barrier(int number, int threads, bool wait, Site site) {
  if (number < 0 || number >= kNamedBarriers)
    fail(site, str("barrier ", number, ", a block has ", kNamedBarriers));
  if (threads % kWarpSize != 0 || threads > stride_)
    fail(site, str("barrier ", number, " of ", threads, " threads, expected a multiple of ",
                   kWarpSize, " up to ", stride_));
  Member& member = members_[static_cast<size_t>(member_)];
  Barrier& barrier = member.barriers[static_cast<size_t>(number)];
  const auto warp = static_cast<size_t>(thread() / kWarpSize);
  const uint32_t me = 1u << lane();
  const auto name = [&] { return number == 0 ? "__syncthreads" : str("barrier ", number); };
  if (barrier.arrived > 0 && barrier.threads != threads)
    fail(site, str(name(), " of ", threads, " threads, at which others meet ", barrier.threads));
  if (barrier.lanes[warp] & me)
    fail(site, str(name(), ": the thread arrives again before the barrier has opened"));
  // The lanes of a warp execute one instruction; two warps may meet from different ones.
  if (barrier.lanes[warp] && !(barrier.sites[warp] == site))
    fail(site, str("divergent ", name(), ": other threads of the warp wait at ",
                   barrier.sites[warp].text()));
  barrier.threads = threads;
  barrier.sites[warp] = site;
  barrier.lanes[warp] |= me;
  if (wait) barrier.waiting[warp] |= me;
  ++barrier.arrived;
  if (observer) observer->arrive(&barrier, current_);
  open_if_complete(member_, number);
  if (wait) park(number == 0 ? "__syncthreads" : "a named barrier", &barrier, site);
  if (wait && observer) observer->pass(&barrier, current_);
}

void Block::open_if_complete(int number_of_member, int number) {
  Member& member = members_[static_cast<size_t>(number_of_member)];
  Barrier& barrier = member.barriers[static_cast<size_t>(number)];
  const int expected = barrier.threads ? barrier.threads : threads_per_member_ - member.exited;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  const int first = number_of_member * stride_ / kWarpSize;
  for (int warp = 0; warp * kWarpSize < threads_per_member_; ++warp) {
    const auto w = static_cast<size_t>(warp);
    const Warp& state = warps_[static_cast<size_t>(first + warp)];
    if (barrier.threads && barrier.lanes[w] && (state.lanes & ~state.exited & ~barrier.lanes[w]))
      fail(barrier.sites[w], str("barrier ", number, ": only some lanes of warp ", warp,
                                 " have arrived: ", hex(barrier.lanes[w])));
    if (barrier.waiting[w]) make_ready(first + warp, barrier.waiting[w]);
    barrier.lanes[w] = barrier.waiting[w] = 0;
  }
  barrier.arrived = barrier.threads = 0;
  if (observer) observer->open(&barrier);
  if (observer && number == 0) observer->count("__syncthreads", 1);
  if (ready_members_) warp_ = choose_warp();  // the last to arrive does not run ahead
}

// Every thread of every block arrives once, and waits once, in each phase.
void Block::cluster_barrier(bool arrive, Site site) {
  if (members() == 1) return;
  cluster_arrived_.resize(threads_.size());
  uint8_t& arrived = cluster_arrived_[static_cast<size_t>(current_)];
  if (!arrive) {
    if (!arrived) fail(site, "cluster_wait without cluster_arrive");
    // 2: the phase in which this thread arrived is complete.
    if (arrived == 1) {
      cluster_waiting_.push_back(current_);
      park("cluster_wait", nullptr, site);
    }
    cluster_arrived_[static_cast<size_t>(current_)] = 0;
    if (observer) observer->pass(&cluster_arrived_, current_);
    return;
  }
  if (arrived) fail(site, "cluster_arrive again before cluster_wait");
  arrived = 1;
  ++cluster_count_;
  if (observer) observer->arrive(&cluster_arrived_, current_);
  open_cluster_if_complete();
}

void Block::open_cluster_if_complete() {
  if (cluster_count_ == 0 || cluster_count_ < members() * threads_per_member_ - exited_) return;
  cluster_count_ = 0;
  for (uint8_t& arrived : cluster_arrived_)
    if (arrived == 1) arrived = 2;
  for (const int thread : cluster_waiting_) wake(thread);
  cluster_waiting_.clear();
  if (observer) observer->open(&cluster_arrived_);
}

// At launch each thread of a block has as many registers as fit. (A GPU's kernel may have fewer:
// those are never the block's.)
void Block::set_registers(int count, bool take, Site site) {
  constexpr int kRegisters = 65536;
  constexpr int kLeast = 24;
  constexpr int kMost = 256;
  constexpr int kUnit = 8;
  constexpr int kMostAtLaunch = 248;
  if (count < kLeast || count > kMost || count % kUnit != 0)
    fail(site, str("setmaxnreg ", count, ", expected a multiple of 8 from 24 to 256"));
  Member& member = members_[static_cast<size_t>(member_)];
  const auto warp = static_cast<size_t>(thread() / kWarpSize);
  const int at_launch = std::min(kRegisters / stride_ / kUnit * kUnit, kMostAtLaunch);
  if (member.registers[warp] == 0) member.registers[warp] = at_launch;
  const int had = member.registers[warp];
  if (take ? count < had : count > had)
    fail(site,
         str("setmaxnreg.", take ? "inc" : "dec", " to ", count, " of a warp that has ", had));
  // Each lane asks; the first that finds enough takes them for the warp.
  const auto more = [&] { return (count - member.registers[warp]) * kWarpSize; };
  while (more() > member.free_registers) park("setmaxnreg.inc", &member.registers, site);
  const bool gives = more() < 0;
  member.free_registers -= more();
  member.registers[warp] = count;
  if (gives) wake_for_registers(member_);
}

void Block::wake_for_registers(int member) {
  for (int t = member * stride_; t < member * stride_ + threads_per_member_; ++t) {
    const Warp& warp = warps_[static_cast<size_t>(t / kWarpSize)];
    const uint32_t lane = 1u << t % kWarpSize;
    const bool parked = warp.started & ~warp.exited & ~warp.ready & lane;
    if (parked && threads_[static_cast<size_t>(t)].waits_on ==
                      &members_[static_cast<size_t>(member)].registers)
      wake(t);
  }
}

void Block::fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (observer) observer->fence();
}

Lane Block::collective(uint32_t mask, Lane mine, Combine combine, const char* kind, Site site) {
  const int warp = current_ / kWarpSize;
  const int me = lane();
  Warp& w = warps_[warp];
  mask &= w.lanes;  // a full mask in a partial last warp names lanes that do not exist
  if (!(mask >> me & 1))
    fail(site, str(kind, ": the calling lane ", me, " is not in the mask ", hex(mask)));

  const int group = std::countr_zero(mask);
  Rendezvous& meeting = w.rendezvous[group];
  if (!(w.arrived_groups >> group & 1)) {
    meeting = {mask, 0, combine, kind};
    w.arrived_groups |= 1u << group;
  }
  if (meeting.mask != mask)
    fail(site,
         str(kind, ": mask ", hex(mask), " meets mask ", hex(meeting.mask), " of another lane"));
  if (meeting.combine != combine)
    fail(site, str(kind, ": another lane of the mask ", hex(mask), " called ", meeting.kind));
  meeting.arrived |= 1u << me;
  threads_[current_].waits_at = site;
  w.values[me] = mine;
  if (!complete(warp, meeting)) park(kind, nullptr, site);
  return w.values[me];
}

// If all lanes that can still arrive have arrived, gives them their results, releases them and
// returns true. Called by the last of them, which continues to run, or by a lane of the mask that
// exits.
bool Block::complete(int warp, Rendezvous& meeting) {
  Warp& w = warps_[warp];
  if (meeting.arrived != (meeting.mask & ~w.exited)) return false;
  const Unobserved unobserved;
  const std::string problem = meeting.combine(w.values.data(), meeting.arrived);
  if (!problem.empty()) fail(threads_[current_].waits_at, str(meeting.kind, ": ", problem));
  w.arrived_groups &= ~(1u << std::countr_zero(meeting.mask));
  if (observer) observer->count(meeting.kind, 1);
  // Only __syncwarp orders memory accesses; the other collectives of a warp do not.
  if (observer && meeting.combine == combine_nothing) order_lanes(warp, meeting);
  if (const uint32_t others = meeting.arrived & ~(1u << lane())) make_ready(warp, others);
  return true;
}

void Block::order_lanes(int warp, const Rendezvous& meeting) const {
  for (uint32_t left = meeting.arrived; left; left &= left - 1)
    observer->arrive(&meeting, warp * kWarpSize + std::countr_zero(left));
  observer->open(&meeting);
  for (uint32_t left = meeting.arrived; left; left &= left - 1)
    observer->pass(&meeting, warp * kWarpSize + std::countr_zero(left));
}

void Block::fail(int thread, Site site, const std::string& problem) const {
  const uint3 t = threads_[static_cast<size_t>(thread)].index;
  const uint3 b = members_[static_cast<size_t>(thread / stride_)].index;
  throw CudaError(str(site.line ? site.text() + ": " : "", "block (", b.x, ", ", b.y, ", ", b.z,
                      "), thread (", t.x, ", ", t.y, ", ", t.z, "): ", problem));
}

// Threads are grouped by the place where they wait. If 255 of 256 have passed one line, that line
// is what the reader looks for.
void Block::expect_all_exited() {
  const int all = members() * threads_per_member_;
  if (exited_ == all) return;
  std::map<std::string, std::pair<int, uint3>> waiting;  // place: how many, and one of them
  for (int t = 0; t < static_cast<int>(threads_.size()); ++t) {
    const Warp& w = warps_[t / kWarpSize];
    const uint32_t bit = 1u << (t % kWarpSize);
    if (!(w.lanes & ~w.exited & bit)) continue;
    const Thread& thread = threads_[static_cast<size_t>(t)];
    auto& [count, example] = waiting[str(thread.waits_in, " at ", thread.waits_at.text(),
                                         async_.describe(thread.waits_on))];
    if (count++ == 0) example = thread.index;
  }
  std::string places;
  for (const auto& [place, group] : waiting) {
    const auto& [count, t] = group;
    places +=
        str("; ", count, " wait in ", place, ", the first is (", t.x, ", ", t.y, ", ", t.z, ")");
  }
  const uint3 b = members_[0].index;
  throw CudaError(str("deadlock in block (", b.x, ", ", b.y, ", ", b.z, ")",
                      members() > 1 ? str(" and its cluster of ", members()) : "", ": of ", all,
                      " threads ", exited_, " have exited", places));
}

}  // namespace ringgrad::emulator
