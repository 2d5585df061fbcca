#include "ringgrad/cuda_kernels/emulator/async_units.h"

#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {

void AsyncUnits::begin() {
  if (!used_) return;
  used_ = false;
  mbarriers_.clear();
  pieces_.clear();
  store_pieces_.clear();
  stores_.clear();
  waiting_for_stores_.clear();
  granules_.clear();
  warpgroups_.clear();
  warps_.clear();
  busy_warps_.clear();
  fences_.clear();
  clock_ = 0;
}

void AsyncUnits::end() {
  while (advance()) {
  }
}

bool AsyncUnits::advance() {
  if (!busy()) return false;
  const Unobserved unobserved;
  // In the forward schedule stores come last; in the reversed one the newest comes first.
  const bool others = !pieces_.empty() || !busy_warps_.empty();
  const bool stores_wait = block_.schedule() == Schedule::Forward && others;
  const size_t choices =
      busy_warps_.size() + pieces_.size() + (stores_wait ? 0 : store_pieces_.size());
  size_t chosen = block_.schedule() == Schedule::Reversed ? choices - 1 : block_.random() % choices;
  if (chosen < busy_warps_.size()) {
    complete_product(busy_warps_[chosen]);
    return true;
  }
  chosen -= busy_warps_.size();
  const bool is_load = chosen < pieces_.size();
  std::vector<Piece>& from = is_load ? pieces_ : store_pieces_;
  const auto at =
      from.begin() + static_cast<std::ptrdiff_t>(is_load ? chosen : chosen - pieces_.size());
  const Piece piece = std::move(*at);
  from.erase(at);
  run(piece);
  return true;
}

int AsyncUnits::member_of(const void* address) const {
  for (int i = 0; i < block_.members(); ++i) {
    const int member = (block_.member() + i) % block_.members();
    const auto* begin = static_cast<const char*>(block_.dynamic_shared(member));
    if (address >= begin && address < begin + block_.grid().shared_bytes) return member;
  }
  return -1;
}

uint32_t AsyncUnits::shared_address(int member, const void* p, size_t bytes, const char* name,
                                    Site site) const {
  const auto* begin = static_cast<const char*>(block_.dynamic_shared(member));
  const auto* at = static_cast<const char*>(p);
  const size_t size = block_.grid().shared_bytes;
  if (!begin || at < begin || at + bytes > begin + size)
    block_.fail(site, str(name, ": ", bytes, " bytes at ", at - begin,
                          " of the block's dynamic shared memory, which has ", size));
  return static_cast<uint32_t>(at - begin) + kFirstSharedAddress;
}

char* AsyncUnits::shared_at(int member, uint32_t address) const {
  return static_cast<char*>(block_.dynamic_shared(member)) + address - kFirstSharedAddress;
}

AsyncUnits::Granule& AsyncUnits::granule(int member, uint32_t address) {
  used_ = true;
  constexpr size_t kBytes = 16;
  granules_.resize(static_cast<size_t>(block_.members()));
  auto& granules = granules_[static_cast<size_t>(member)];
  if (granules.empty())
    granules.resize((block_.grid().shared_bytes + kFirstSharedAddress) / kBytes + 1);
  return granules[address / kBytes];
}

std::string AsyncUnits::describe(const void* object) const {
  const auto found = mbarriers_.find(static_cast<const uint64_t*>(object));
  if (found == mbarriers_.end()) return "";
  const Mbarrier& m = found->second;
  return str(" (phase ", m.phase, ": ", m.expected - m.pending, " of ", m.expected,
             " arrivals have come, ", m.bytes, " announced bytes have not landed)");
}

void AsyncUnits::exit_thread() {
  const Unobserved unobserved;
  const auto found = stores_.find(block_.thread_of_cluster());
  if (found == stores_.end() || !found->second.open) return;
  block_.fail(found->second.copies.back()->site,
              "a thread exits with stores that bulk_commit has not committed");
}

void AsyncUnits::exit_member() {
  const Unobserved unobserved;
  if (!used_) return;
  const int member = block_.member();
  for (const Piece& piece : pieces_)
    if (piece.copy->member == member)
      block_.fail(piece.copy->thread, piece.copy->site,
                  "the block exits before the copy has landed in its shared memory");
  for (const Piece& piece : store_pieces_)
    if (piece.copy->member == member && !piece.copy->read)
      block_.fail(piece.copy->thread, piece.copy->site,
                  "the block exits before the store has read its shared memory: bulk_wait_read is "
                  "missing");
  const int first = member * block_.threads_of_cluster() / block_.members() / kWarpSize;
  const int count = block_.threads_of_cluster() / block_.members() / kWarpSize;
  for (int warp = first; warp < first + count && warp < static_cast<int>(warps_.size()); ++warp) {
    const Warp& state = warps_[static_cast<size_t>(warp)];
    const Warp& leader =
        warps_[static_cast<size_t>(first + (warp - first) / kWarpsOfGroup * kWarpsOfGroup)];
    if (state.issued != state.completed)
      block_.fail(warp * kWarpSize, {},
                  str("the warp exits with ", state.issued - state.completed,
                      " products in flight: wgmma_wait is missing"));
    if (state.issued != leader.issued)
      block_.fail(warp * kWarpSize, {},
                  str("the warp has executed ", state.issued,
                      " wgmma and the first warp of its "
                      "group of four ",
                      leader.issued));
  }
  for (const auto& [barrier, state] : mbarriers_)
    if (member_of(barrier) == member && state.bytes < 0)
      block_.fail(state.initialised_by, {},
                  str("mbarrier: ", -state.bytes, " bytes have landed that nobody announced"));
}

}  // namespace ringgrad::emulator
