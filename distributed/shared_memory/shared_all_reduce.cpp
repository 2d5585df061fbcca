// SharedAllReduce: all-reduce, and its two halves, between ranks that share memory. Nothing is
// sent.
//
// Each rank owns one slice of the elements. It reduces that slice over all ranks' buffers and
// stores the result into all of them. There are two barriers: when every buffer is complete, and
// when every slice is stored. Together n ranks move 2 n · bytes(x), which is the least possible:
// each byte of each buffer is read once and written once. All ranks get the same bits, because one
// rank computes each element, in the order of ranks.
//
// This works for buffers from allocate(). Other buffers go through staging areas beside the control
// pages, piece by piece. That costs two more copies, which stay in the cache.
//
// With several machines of several ranks each, the owner of a slice adds only its own machine's
// buffers. Then the owners of that slice on all machines add their sums in a ring, and each stores
// the result on its machine. Messages carry the halves then.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/distributed/other_collectives/other_collectives.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/distributed/process_groups/message_collectives.h"
#include "ringgrad/distributed/shared_memory/shared_memory_peers.h"

namespace ringgrad {
namespace {

constexpr size_t kCacheLine = 64;  // slices begin at cache lines
// Half of a staging area: one piece is staged while other ranks still read the one before.
constexpr size_t kPieceBytes = kStagingBytes / 2;

Range slice_of(size_t count, int size, int rank, size_t item_bytes) {
  const size_t unit = kCacheLine / item_bytes;
  const size_t units = (count + unit - 1) / unit;
  const size_t n = static_cast<size_t>(size);
  const auto edge = [&](size_t r) { return std::min(count, units * r / n * unit); };
  return {edge(static_cast<size_t>(rank)), edge(static_cast<size_t>(rank) + 1)};
}

class SharedAllReduce final : public GroupMemory {
 public:
  // `here` are the ranks of this machine, in order, with this one. `across` are the ranks that own
  // the same slice on the other machines, with this one; it is empty if all ranks are on this
  // machine. The transport and the options must outlive this object.
  SharedAllReduce(Transport& transport, const HostOptions& options, std::vector<int> here,
                  std::vector<int> across)
      : transport_(transport),
        options_(options),
        memory_(memory_of(transport)),
        here_(std::move(here)),
        across_(std::move(across)),
        rank_(static_cast<int>(std::find(here_.begin(), here_.end(), transport.rank()) -
                               here_.begin())),
        size_(static_cast<int>(here_.size())) {}

  std::string backend() const override {
    if (!across_.empty()) return "shared memory, and " + ring_over(transport_, across_);
    return size_ > 1 ? "shared memory" : "ring";
  }

  std::shared_ptr<Storage> allocate(size_t bytes) override {
    SharedSegment segment = memory_.share(transport_, bytes);
    std::byte* data = segment.parts[here_[rank_]]->data();
    {
      std::lock_guard lock(segments_->mutex);
      segments_->list.push_back(segment);
    }
    count_memory({}, static_cast<int64_t>(bytes));
    const auto forget = [segments = segments_, id = segment.id, bytes] {
      count_memory({}, -static_cast<int64_t>(bytes));
      std::lock_guard lock(segments->mutex);
      std::erase_if(segments->list, [&](const SharedSegment& s) { return s.id == id; });
    };
    return std::make_shared<Storage>(data, bytes, Device(), forget);
  }

  bool all_reduce(const Collective& c, const Frame& frame) override {
    const ReduceFunctions& reduction = ringgrad::reduction("all_reduce", frame.dtype, c.reduce_op);
    auto* items = static_cast<std::byte*>(c.output.raw_data());
    const size_t count = frame.count;
    const size_t bytes = count * reduction.item_bytes;
    if (!across_.empty() && (c.in_slices() || is_small(bytes, transport_.size()))) return false;
    std::optional<Messenger> machines;
    if (!across_.empty())
      machines.emplace(transport_, frame, options_.checksums, across_, options_.on_send);
    Messenger* const across = machines ? &*machines : nullptr;
    const Place place = find(items, bytes);
    if (place.segment == 0 && bytes > 0 && !c.in_slices())
      std::memcpy(staging(rank_), items, std::min(bytes, kPieceBytes));
    ControlPage& own = memory_.control_page(here_[rank_]);
    own.segment.store(place.segment, std::memory_order_relaxed);
    own.offset.store(place.offset, std::memory_order_relaxed);
    transport_.enter(frame, c.options.about);
    memory_.wait_for_all(transport_, &ControlPage::entered,
                         transport_.ranks().position().frame.sequence);
    memory_.check_entered();

    // Buffers in several segments count as not shared: a rank may have released another one's.
    bool all_shared = place.segment != 0;
    bool none_shared = place.segment == 0;
    for (const int r : here_) {
      const uint64_t theirs = memory_.control_page(r).segment.load(std::memory_order_relaxed);
      all_shared &= theirs == place.segment;
      none_shared &= theirs == 0;
    }
    if (count == 0)
      meet();  // a barrier: no rank goes on before all have compared their frames
    else if (c.in_slices())
      run_half(c, items, count, reduction, all_shared);
    else if (all_shared)
      reduce_in_place(count, reduction, across);
    else
      reduce_staged(items, count, reduction, across, none_shared);
    return true;
  }

 private:
  struct Place {  // the place of a buffer; segment 0: not in shared memory
    uint64_t segment = 0;
    uint64_t offset = 0;
  };
  struct Segments {  // shared with the storages, which may outlive this object and die in any
                     // thread
    std::mutex mutex;
    std::vector<SharedSegment> list;
  };

  Place find(const std::byte* begin, size_t bytes) const {
    std::lock_guard lock(segments_->mutex);
    for (const SharedSegment& segment : segments_->list) {
      const SharedMemory& own = *segment.parts[here_[rank_]];
      if (begin >= own.data() && begin + bytes <= own.data() + own.size())
        return {segment.id, static_cast<uint64_t>(begin - own.data())};
    }
    return {};
  }

  // Returns the address of `rank`'s buffer of so many bytes. REQUIRES: all ranks have entered.
  std::byte* address(int rank, size_t bytes) const {
    const ControlPage& page = memory_.control_page(here_[rank]);
    const uint64_t id = page.segment.load(std::memory_order_relaxed);
    const uint64_t offset = page.offset.load(std::memory_order_relaxed);
    std::lock_guard lock(segments_->mutex);
    for (const SharedSegment& segment : segments_->list) {
      if (segment.id != id) continue;
      const SharedMemory& part = *segment.parts[here_[rank]];
      CHECK_AS(OutOfStepError, bytes <= part.size() && offset <= part.size() - bytes,
               "all_reduce: rank ", here_[rank], " says its ", bytes, " bytes begin at byte ",
               offset, " of a shared segment of ", part.size());
      return part.data() + offset;
    }
    throw OutOfStepError(str("all_reduce: rank ", here_[rank], " uses shared segment ", id,
                             ", which rank ", here_[rank_], " has released already"));
  }

  std::byte* staging(int rank) const { return memory_.staging(here_[rank]) + turn_ * kPieceBytes; }

  void meet() {
    memory_.control_page(here_[rank_]).arrived.store(++meetings_);
    memory_.ring_if_complete(&ControlPage::arrived, meetings_);
    memory_.wait_for_all(transport_, &ControlPage::arrived, meetings_);
  }

  void reduce_slice(const std::vector<void*>& inputs, const std::vector<void*>& results,
                    size_t begin, size_t end, const ReduceFunctions& reduction, Messenger* across) {
    const int num_results = static_cast<int>(results.size());
    if (!across)
      return reduction.reduce_all(results.data(), num_results, inputs.data(), size_, begin, end);
    const size_t count = end - begin;
    const size_t item = reduction.item_bytes;
    const auto wide = std::make_unique_for_overwrite<std::byte[]>(count * reduction.wide_bytes);
    reduction.combine_all(wide.get(), inputs.data(), size_, begin, end);
    ringgrad::all_reduce(*across, AllReduceAlgorithm::Auto, wide.get(), count, *reduction.on_wide,
                         options_.segment_bytes);
    auto* first = static_cast<std::byte*>(results[0]) + begin * item;
    reduction.finish(first, wide.get(), count, transport_.size());
    for (int r = 1; r < num_results; ++r)
      std::memcpy(static_cast<std::byte*>(results[r]) + begin * item, first, count * item);
  }

  // With several machines it uses the same pieces as reduce_staged(), because another machine's
  // ranks may have staged their buffers.
  void reduce_in_place(size_t count, const ReduceFunctions& reduction, Messenger* across) {
    std::vector<void*> buffers(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) buffers[r] = address(r, count * reduction.item_bytes);
    const size_t piece = across ? kPieceBytes / reduction.item_bytes : count;
    for (size_t at = 0; at < count; at += piece) {
      const auto [begin, end] =
          slice_of(std::min(piece, count - at), size_, rank_, reduction.item_bytes);
      reduce_slice(buffers, buffers, at + begin, at + end, reduction, across);
    }
    meet();
  }

  // A slice is a rank's chunk of the whole array, so a piece has a part of each slice. The halves
  // alternate between the staging areas as reduce_staged() does. One meeting is enough for a piece:
  // an area is written to again after the next meeting, before which all ranks have read it.
  void run_half(const Collective& c, std::byte* x, size_t count, const ReduceFunctions& reduction,
                bool all_shared) {
    const bool sums = c.operation == Operation::ReduceScatter;
    const size_t item = reduction.item_bytes;
    const auto chunk = [&](int r) { return chunk_of({0, count}, size_, r); };
    std::vector<void*> buffers(static_cast<size_t>(size_));
    const auto use = [&](size_t r) { return static_cast<std::byte*>(buffers[r]); };
    if (all_shared) {
      for (int r = 0; r < size_; ++r) buffers[r] = address(r, count * item);
      const Range own = chunk(rank_);
      if (sums) reduce_slice(buffers, {x}, own.begin, own.end, reduction, nullptr);
      for (int r = 0; r < size_ && !sums; ++r)
        if (r != rank_)
          std::memcpy(x + chunk(r).begin * item, use(r) + chunk(r).begin * item,
                      chunk(r).count() * item);
      return meet();
    }
    const size_t step = kPieceBytes / item / (sums ? static_cast<size_t>(size_) : 1);
    const size_t largest = chunk(size_ - 1).count();
    for (size_t at = 0; at < largest; at += step, turn_ ^= 1) {
      const auto part = [&](int r) {
        const Range all = chunk(r);
        return Range{std::min(all.end, all.begin + at), std::min(all.end, all.begin + at + step)};
      };
      for (int r = 0; r < size_; ++r) buffers[r] = staging(r);
      for (int r = 0; r < size_; ++r)
        if (sums || r == rank_)
          std::memcpy(use(rank_) + (sums ? r * step * item : 0), x + part(r).begin * item,
                      part(r).count() * item);
      meet();
      for (int r = 0; r < size_ && !sums; ++r)
        if (r != rank_) std::memcpy(x + part(r).begin * item, staging(r), part(r).count() * item);
      if (!sums) continue;
      void* const result = x + part(rank_).begin * item;
      for (int r = 0; r < size_; ++r) buffers[r] = use(r) + rank_ * step * item;
      reduction.reduce_all(&result, 1, buffers.data(), size_, 0, part(rank_).count());
    }
  }

  // For each piece, every rank stages it, reduces its slice into its own staging area, and collects
  // all slices. Two staging areas alternate, also from one collective to the next. So a rank that
  // stages a piece need not wait for ranks that still collect the previous one. All ranks have
  // collected the piece before that, because the last barrier comes after it.
  void reduce_staged(std::byte* x, size_t count, const ReduceFunctions& reduction,
                     Messenger* across, bool first_is_staged) {
    const size_t item = reduction.item_bytes;
    const size_t piece = kPieceBytes / item;
    std::vector<void*> staged(static_cast<size_t>(size_));
    for (size_t at = 0; at < count; at += piece, turn_ ^= 1) {
      const size_t n = std::min(piece, count - at);
      for (int r = 0; r < size_; ++r) staged[r] = staging(r);
      if (at > 0 || !first_is_staged) {
        std::memcpy(staged[rank_], x + at * item, n * item);
        meet();
      }
      const Range own = slice_of(n, size_, rank_, item);
      reduce_slice(staged, {staged[rank_]}, own.begin, own.end, reduction, across);
      meet();
      for (int r = 0; r < size_; ++r) {
        const auto [begin, end] = slice_of(n, size_, r, item);
        std::memcpy(x + (at + begin) * item, static_cast<std::byte*>(staged[r]) + begin * item,
                    (end - begin) * item);
      }
    }
  }

  Transport& transport_;
  const HostOptions& options_;
  SharedMemoryPeers& memory_;
  const std::vector<int> here_;
  const std::vector<int> across_;
  // Among the ranks in here_.
  const int rank_;
  const int size_;
  std::shared_ptr<Segments> segments_ = std::make_shared<Segments>();
  uint64_t meetings_ = 0;
  size_t turn_ = 0;  // which of the two staging areas the next piece uses
};

// Returns an all-reduce through shared memory if all ranks share it. With several machines, each
// must have the same number of ranks, so that each rank has a partner on every other machine. Else
// returns nullptr.
std::unique_ptr<GroupMemory> find_sums(Transport& transport, const HostOptions& options) {
  const int size = transport.size();
  const int rank = transport.rank();
  const AllReduceAlgorithm way = options.algorithm;
  if (way != AllReduceAlgorithm::Auto && way != AllReduceAlgorithm::SharedMemory) return nullptr;
  if (!transport.local_peers()) return nullptr;
  const bool all_share = memory_of(transport).all_opened();
  if (way == AllReduceAlgorithm::SharedMemory && !all_share) return nullptr;
  const auto machines = all_share ? std::vector<int>(static_cast<size_t>(size)) : options.machines;
  if (machines.empty()) return nullptr;
  std::map<int, std::vector<int>> ranks_on;  // by machine
  for (int r = 0; r < size; ++r) ranks_on[machines[r]].push_back(r);
  const std::vector<int>& here = ranks_on[machines[rank]];
  const auto own_place = std::find(here.begin(), here.end(), rank) - here.begin();
  std::vector<int> across;
  if (ranks_on.size() > 1)
    for (const auto& [machine, ranks] : ranks_on) {
      if (ranks.size() != here.size() || here.size() == 1) return nullptr;
      across.push_back(ranks[own_place]);
    }
  return std::make_unique<SharedAllReduce>(transport, options, here, std::move(across));
}

BEFORE_MAIN(shared_all_reduce, find_group_memory = find_sums);

}  // namespace
}  // namespace ringgrad
