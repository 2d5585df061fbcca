// mbarriers: a phase is complete when all expected threads have arrived and all announced bytes
// have landed.
#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {
namespace {

constexpr int64_t kMost = (1 << 20) - 1;  // arrivals, and bytes

}  // namespace

void AsyncUnits::init(const uint64_t* barrier, unsigned arrivals, Site site) {
  const Unobserved unobserved;
  used_ = true;
  if (reinterpret_cast<uintptr_t>(barrier) % sizeof *barrier != 0)
    block_.fail(site, "mbarrier_init: an address that is no multiple of 8");
  if (block_.on_fiber_stack(barrier))
    block_.fail(site, "mbarrier_init: the mbarrier is not in shared memory");
  if (arrivals == 0 || arrivals > kMost)
    block_.fail(site, str("mbarrier_init for ", arrivals, " arrivals, expected 1 to ", kMost));
  const auto [at, is_new] = mbarriers_.try_emplace(barrier);
  if (!is_new)
    block_.fail(site, "mbarrier_init of an mbarrier in use: mbarrier_inval must come first");
  at->second = {.expected = arrivals,
                .pending = arrivals,
                .initialised_by = block_.thread_of_cluster(),
                .waiting = {}};
}

void AsyncUnits::invalidate(const uint64_t* barrier, Site site) {
  const Unobserved unobserved;
  const Mbarrier& state = find(barrier, "mbarrier_inval", site);
  if (!state.waiting.empty())
    block_.fail(site, str("mbarrier_inval while ", state.waiting.size(), " threads wait",
                          describe(barrier)));
  mbarriers_.erase(barrier);
}

void AsyncUnits::fence_init() {
  const Unobserved unobserved;
  for (auto& [barrier, state] : mbarriers_)
    if (state.initialised_by == block_.thread_of_cluster()) state.fenced = true;
}

AsyncUnits::Mbarrier& AsyncUnits::find(const uint64_t* barrier, const char* name, Site site) {
  const auto found = mbarriers_.find(barrier);
  if (found == mbarriers_.end())
    block_.fail(site,
                str(name, ": no mbarrier has been initialised there, or it is invalid again"));
  return found->second;
}

void AsyncUnits::arrive(const uint64_t* barrier, bool remote, Site site) {
  const Unobserved unobserved;
  Mbarrier& state = find(barrier, "mbarrier_arrive", site);
  if (remote) {
    const int member = member_of(barrier);
    if (member >= 0 && block_.exited(member))
      block_.fail(site,
                  str("mbarrier_arrive_cluster: block ", member, " of the cluster has exited"));
    if (!state.fenced)
      block_.fail(site,
                  "mbarrier_arrive_cluster: fence_mbarrier_init is missing after "
                  "mbarrier_init");
  }
  if (state.pending == 0)
    block_.fail(site, str("mbarrier_arrive: too many arrivals", describe(barrier)));
  --state.pending;
  if (observer) observer->arrive(barrier, block_.thread_of_cluster());
  flip_if_complete(barrier, state);
}

void AsyncUnits::expect(const uint64_t* barrier, unsigned bytes, Site site) {
  const Unobserved unobserved;
  Mbarrier& state = find(barrier, "mbarrier_expect_tx", site);
  state.bytes += bytes;
  if (state.bytes > kMost)
    block_.fail(
        site, str("mbarrier_expect_tx: more than ", kMost, " bytes in a phase", describe(barrier)));
}

void AsyncUnits::complete_bytes(const Copy& copy, uint32_t bytes) {
  const auto found = mbarriers_.find(copy.barrier);
  if (found == mbarriers_.end())
    block_.fail(copy.thread, copy.site, "a copy lands, and its mbarrier is invalid");
  found->second.bytes -= bytes;
  flip_if_complete(copy.barrier, found->second);
}

void AsyncUnits::flip_if_complete(const uint64_t* barrier, Mbarrier& state) {
  if (state.pending != 0 || state.bytes != 0) return;
  ++state.phase;
  state.pending = state.expected;
  if (observer) observer->open(barrier);
  for (const int thread : state.waiting) block_.wake(thread);
  state.waiting.clear();
}

bool AsyncUnits::test(const uint64_t* barrier, unsigned parity, bool wait, Site site) {
  const Unobserved unobserved;
  if (parity > 1) block_.fail(site, str("mbarrier_wait for parity ", parity, ", expected 0 or 1"));
  const uint64_t phase = find(barrier, "mbarrier_wait", site).phase;
  if ((phase & 1) == parity) {
    if (!wait) {
      block_.yield();
      unobserved.again();
      if ((find(barrier, "mbarrier_try_wait", site).phase & 1) == parity) return false;
    } else {
      find(barrier, "mbarrier_wait", site).waiting.push_back(block_.thread_of_cluster());
      block_.park("mbarrier_wait", barrier, site);
      unobserved.again();
      const uint64_t now = find(barrier, "mbarrier_wait", site).phase;
      if (now != phase + 1)
        block_.fail(site, str("mbarrier_wait for phase ", phase, ", and phase ", now - 1,
                              " is complete before this thread has run: on a GPU it may wait "
                              "forever"));
    }
  }
  if (observer) observer->pass(barrier, block_.thread_of_cluster());
  return true;
}

}  // namespace ringgrad::emulator
