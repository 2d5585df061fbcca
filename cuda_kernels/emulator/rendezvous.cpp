// The events for which the threads of a block wait: the block's barrier and warp collectives. Also
// reports events that can never come.
#include <atomic>
#include <bit>
#include <map>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {
namespace {

std::string hex(uint32_t mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

}  // namespace

void Block::sync_threads(Site site) {
  if (waiting_at_barrier_ > 0 && !(site == barrier_site_))
    fail(site,
         "divergent __syncthreads: other threads of the block wait at " + barrier_site_.text());
  barrier_site_ = site;
  threads_[current_].waits_at = site;
  warps_[current_ / kWarpSize].at_barrier |= 1u << lane();
  ++waiting_at_barrier_;
  open_barrier_if_complete();
  suspend();
}

void Block::open_barrier_if_complete() {
  const int alive = static_cast<int>(threads_.size()) - exited_;
  if (waiting_at_barrier_ == 0 || waiting_at_barrier_ < alive) return;
  waiting_at_barrier_ = 0;
  if (observer) observer->block_barrier();
  for (size_t warp = 0; warp * kWarpSize < threads_.size(); ++warp) {
    if (warps_[warp].at_barrier) make_ready(static_cast<int>(warp), warps_[warp].at_barrier);
    warps_[warp].at_barrier = 0;
  }
  warp_ = choose(ready_warps_);  // all start again; the last to arrive does not run ahead
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
  if (!complete(warp, meeting)) suspend();
  return w.values[me];
}

// If all lanes that can still arrive have arrived, gives them their results, releases them and
// returns true. Called by the last of them, which continues to run, or by a lane of the mask that
// exits.
bool Block::complete(int warp, Rendezvous& meeting) {
  Warp& w = warps_[warp];
  if (meeting.arrived != (meeting.mask & ~w.exited)) return false;
  const std::string problem = meeting.combine(w.values.data(), meeting.arrived);
  if (!problem.empty()) fail(threads_[current_].waits_at, str(meeting.kind, ": ", problem));
  w.arrived_groups &= ~(1u << std::countr_zero(meeting.mask));
  if (observer) observer->collective(meeting.kind);
  // Only __syncwarp orders memory accesses; the other collectives of a warp do not.
  if (observer && meeting.combine == combine_nothing && meeting.arrived == (w.lanes & ~w.exited))
    observer->warp_barrier(warp);
  if (const uint32_t others = meeting.arrived & ~(1u << lane())) make_ready(warp, others);
  return true;
}

void Block::fail(Site site, const std::string& problem) {
  const uint3 t = threadIdx;
  const uint3 b = blockIdx;
  throw CudaError(str(site.line ? site.text() + ": " : "", "block (", b.x, ", ", b.y, ", ", b.z,
                      "), thread (", t.x, ", ", t.y, ", ", t.z, "): ", problem));
}

// Threads are grouped by the place where they wait. If 255 of 256 have passed one line, that line
// is what the reader looks for.
void Block::expect_all_exited() {
  if (exited_ == static_cast<int>(threads_.size())) return;
  std::map<std::string, std::pair<int, uint3>> waiting;  // place: how many, and one of them
  for (int t = 0; t < static_cast<int>(threads_.size()); ++t) {
    const Warp& w = warps_[t / kWarpSize];
    const uint32_t bit = 1u << (t % kWarpSize);
    if (w.exited & bit) continue;
    const char* kind = "__syncthreads";
    for (uint32_t groups = w.arrived_groups; groups; groups &= groups - 1)
      if (const auto& meeting = w.rendezvous[std::countr_zero(groups)]; meeting.arrived & bit)
        kind = meeting.kind;
    auto& [count, example] = waiting[str(kind, " at ", threads_[t].waits_at.text())];
    if (count++ == 0) example = threads_[t].index;
  }
  std::string places;
  for (const auto& [place, group] : waiting) {
    const auto& [count, t] = group;
    places +=
        str("; ", count, " wait in ", place, ", the first is (", t.x, ", ", t.y, ", ", t.z, ")");
  }
  const uint3 b = blockIdx;
  throw CudaError(str("deadlock in block (", b.x, ", ", b.y, ", ", b.z, "): of ", threads_.size(),
                      " threads ", exited_, " have exited", places));
}

}  // namespace ringgrad::emulator
