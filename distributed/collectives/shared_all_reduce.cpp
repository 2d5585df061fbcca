#include "ringgrad/distributed/collectives/shared_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {
namespace {

constexpr size_t kLine = 64;  // slices begin at cache lines of the buffer
// The next piece is staged while others still read the last one.
constexpr size_t kPieceBytes = kStagingBytes / 2;

Range slice_of(size_t count, int size, int rank, size_t item_bytes) {
  const size_t unit = kLine / item_bytes, units = (count + unit - 1) / unit,
               n = static_cast<size_t>(size);
  const auto edge = [&](size_t r) { return std::min(count, units * r / n * unit); };
  return {edge(static_cast<size_t>(rank)), edge(static_cast<size_t>(rank) + 1)};
}

}  // namespace

SharedAllReduce::SharedAllReduce(Transport& transport, std::vector<int> here)
    : transport_(transport),
      memory_(transport.memory()),
      here_(std::move(here)),
      rank_(static_cast<int>(std::find(here_.begin(), here_.end(), transport.rank()) -
                             here_.begin())),
      size_(static_cast<int>(here_.size())) {}

std::shared_ptr<Storage> SharedAllReduce::allocate(size_t bytes) {
  SharedSegment segment = transport_.share(bytes);
  std::byte* data = segment.parts[here_[rank_]]->data();
  {
    std::lock_guard lock(segments_->mutex);
    segments_->list.push_back(segment);
  }
  const auto forget = [segments = segments_, id = segment.id] {
    std::lock_guard lock(segments->mutex);
    std::erase_if(segments->list, [&](const SharedSegment& s) { return s.id == id; });
  };
  return std::make_shared<Storage>(data, bytes, Device(), forget);
}

SharedAllReduce::Place SharedAllReduce::find(const void* x, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(x);
  std::lock_guard lock(segments_->mutex);
  for (const SharedSegment& segment : segments_->list) {
    const SharedMemory& own = *segment.parts[here_[rank_]];
    if (begin >= own.data() && begin + bytes <= own.data() + own.size())
      return {segment.id, static_cast<uint64_t>(begin - own.data())};
  }
  return {};
}

// Where `rank` has its buffer of so many bytes, after all ranks have entered.
std::byte* SharedAllReduce::address(int rank, size_t bytes) const {
  const Board& board = memory_.board(here_[rank]);
  const uint64_t id = board.segment.load(std::memory_order_relaxed),
                 offset = board.offset.load(std::memory_order_relaxed);
  std::lock_guard lock(segments_->mutex);
  for (const SharedSegment& segment : segments_->list) {
    if (segment.id != id) continue;
    const SharedMemory& part = *segment.parts[here_[rank]];
    CHECK_AS(OutOfStepError, bytes <= part.size() && offset <= part.size() - bytes,
             "all_reduce: rank ", here_[rank], " says its ", bytes, " bytes begin at byte ", offset,
             " of a shared segment of ", part.size());
    return part.data() + offset;
  }
  throw OutOfStepError(str("all_reduce: rank ", here_[rank], " uses shared segment ", id,
                           ", which rank ", here_[rank_], " has released already"));
}

std::byte* SharedAllReduce::staging(int rank) const {
  return memory_.staging(here_[rank]) + turn_ * kPieceBytes;
}

void SharedAllReduce::wait_for_all(std::atomic<uint64_t> Board::*count, uint64_t value) {
  transport_.wait_until([&] { return memory_.complete(count, value); });
}

void SharedAllReduce::meet() {
  memory_.board(here_[rank_]).arrived.store(++meetings_);
  memory_.ring_if_complete(&Board::arrived, meetings_);
  wait_for_all(&Board::arrived, meetings_);
}

void SharedAllReduce::run(const Frame& frame, std::shared_ptr<const std::string> about, void* x,
                          size_t count, const ReduceFunctions& reduction, const Across& across) {
  auto* items = static_cast<std::byte*>(x);
  const size_t bytes = count * reduction.item_bytes;
  const Place place = find(x, bytes);
  if (place.segment == 0 && bytes > 0)
    std::memcpy(staging(rank_), items, std::min(bytes, kPieceBytes));
  Board& own = memory_.board(here_[rank_]);
  own.segment.store(place.segment, std::memory_order_relaxed);
  own.offset.store(place.offset, std::memory_order_relaxed);
  transport_.enter(frame, std::move(about));
  wait_for_all(&Board::entered, transport_.ranks().position().frame.sequence);
  memory_.check_entered();

  bool all_shared = true, none_shared = true;
  for (const int r : here_) {
    const bool shared = memory_.board(r).segment.load(std::memory_order_relaxed) != 0;
    all_shared &= shared;
    none_shared &= !shared;
  }
  if (count == 0)
    meet();  // no rank goes on before all have seen what the others are in
  else if (all_shared)
    reduce_in_place(count, reduction, across);
  else
    reduce_staged(items, count, reduction, across, none_shared);
}

void SharedAllReduce::reduce_slice(const std::vector<void*>& inputs,
                                   const std::vector<void*>& results, size_t begin, size_t end,
                                   const ReduceFunctions& reduction, const Across& across) {
  const int num_results = static_cast<int>(results.size());
  if (!across)
    return reduction.reduce_all(results.data(), num_results, inputs.data(), size_, begin, end);
  const size_t count = end - begin, item = reduction.item_bytes;
  const auto wide = std::make_unique_for_overwrite<std::byte[]>(count * reduction.wide_bytes);
  reduction.combine_all(wide.get(), inputs.data(), size_, begin, end);
  across(wide.get(), count, *reduction.on_wide);
  auto* first = static_cast<std::byte*>(results[0]) + begin * item;
  reduction.finish(first, wide.get(), count, transport_.size());
  for (int r = 1; r < num_results; ++r)
    std::memcpy(static_cast<std::byte*>(results[r]) + begin * item, first, count * item);
}

// Between machines in the same pieces as below, because another machine's ranks may have staged
// theirs.
void SharedAllReduce::reduce_in_place(size_t count, const ReduceFunctions& reduction,
                                      const Across& across) {
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

// Each piece: every rank stages it, reduces its slice into its own staging area, and collects all
// slices. Two areas take turns, also from one collective to the next: a rank that stages a piece
// need not wait for those who still collect the one before, and all have collected the one before
// that, or they would not have met for the last.
void SharedAllReduce::reduce_staged(std::byte* x, size_t count, const ReduceFunctions& reduction,
                                    const Across& across, bool first_is_staged) {
  const size_t item = reduction.item_bytes, piece = kPieceBytes / item;
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

}  // namespace ringgrad
