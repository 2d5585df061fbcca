#include <algorithm>
#include <chrono>
#include <cmath>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/collectives/ring_parts.h"
#include "ringgrad/distributed/other_collectives/other_collectives.h"

namespace ringgrad {

using namespace ring;

namespace {

// A rank sends so many segments to another one before it waits for the first of the other's. That
// fills a link across a continent: 100 Mbit/s and 200 ms are 2.5 MB.
constexpr size_t kAhead = 12;
// In smaller segments the headers would be more than a hundredth of the bytes.
constexpr size_t kSmallestSegment = 16 << 10;
constexpr size_t kSegmentsOfSlice = 8;

// One segment of all ranks' elements, which this rank reduces.
class Inputs {
 public:
  Inputs(Messenger& messages, const ReduceFunctions& reduction, size_t segment)
      : messages_(messages),
        reduction_(reduction),
        segment_bytes_(segment * reduction.item_bytes),
        memory_(buffer(segment_bytes_ * static_cast<size_t>(messages.size()))) {}

  void receive(size_t bytes) {
    for (int r = 0; r < messages_.size(); ++r)
      if (r != messages_.rank()) messages_.recv(r, {place(r), bytes});
  }
  // With this rank's own elements, in the order of ranks; the result takes their place.
  void reduce_into(std::span<std::byte> own) {
    std::vector<const void*> inputs;
    for (int r = 0; r < messages_.size(); ++r)
      inputs.push_back(r == messages_.rank() ? own.data() : place(r));
    void* result = own.data();
    reduction_.reduce_all(&result, 1, inputs.data(), messages_.size(), 0,
                          own.size() / reduction_.item_bytes);
  }

 private:
  std::byte* place(int r) const { return memory_.get() + segment_bytes_ * static_cast<size_t>(r); }

  Messenger& messages_;
  const ReduceFunctions& reduction_;
  const size_t segment_bytes_;
  const Buffer memory_;
};

// All other ranks, beginning with the right neighbour, so that no rank is sent everything at once.
template <class Body>
void for_each_other(const Messenger& messages, Body body) {
  for (int distance = 1; distance < messages.size(); ++distance)
    body((messages.rank() + distance) % messages.size());
}

}  // namespace

void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction, size_t segment_bytes) {
  const Items items{static_cast<std::byte*>(x), reduction.item_bytes};
  const size_t segment = segment_items(segment_bytes, reduction, count);
  const size_t segments = segments_in(count, segment);
  Inputs inputs(messages, reduction, segment);
  std::vector<Transfer> sent[kAhead];
  for (size_t turn = 0; turn < segments + kAhead; ++turn) {
    std::vector<Transfer>& transfers = sent[turn % kAhead];
    if (turn >= kAhead && turn - kAhead < segments) {
      const auto own = items.part(segment_of({0, count}, segment, turn - kAhead));
      inputs.receive(own.size());
      for (const Transfer& transfer : transfers) messages.wait(transfer);
      inputs.reduce_into(own);
    }
    transfers.clear();
    if (turn < segments)
      for_each_other(messages, [&](int r) {
        transfers.push_back(messages.send(r, items.part(segment_of({0, count}, segment, turn))));
      });
  }
  messages.finish();
}

void direct_all_reduce(Messenger& messages, void* x, size_t count, const ReduceFunctions& reduction,
                       size_t segment_bytes, bool slices_only) {
  const int size = messages.size();
  const Items items{static_cast<std::byte*>(x), reduction.item_bytes};
  const auto slice = [&](int r) { return chunk_of({0, count}, size, r); };
  const size_t largest = slice(size - 1).count();
  const size_t shortest =
      std::max(kSmallestSegment, largest * reduction.item_bytes / kSegmentsOfSlice);
  const size_t segment = segment_items(std::min(segment_bytes, shortest), reduction, largest);
  const size_t segments = segments_in(largest, segment);
  const auto part = [&](int r, size_t i) { return items.part(segment_of(slice(r), segment, i)); };
  Inputs inputs(messages, reduction, segment);
  for (size_t turn = 0; turn < segments + 2 * kAhead; ++turn) {
    if (turn < segments)
      for_each_other(messages, [&](int r) {
        if (const auto theirs = part(r, turn); !theirs.empty()) messages.send(r, theirs);
      });
    const size_t reduced = turn - kAhead;
    if (turn >= kAhead && reduced < segments) {
      if (const auto own = part(messages.rank(), reduced); !own.empty()) {
        inputs.receive(own.size());
        inputs.reduce_into(own);
        if (!slices_only) for_each_other(messages, [&](int r) { messages.send(r, own); });
      }
    }
    // An owner has received this rank's elements, so the result can take their place.
    const size_t done = turn - 2 * kAhead;
    if (!slices_only && turn >= 2 * kAhead && done < segments)
      for_each_other(messages, [&](int r) {
        if (const auto theirs = part(r, done); !theirs.empty()) messages.recv(r, theirs);
      });
  }
  messages.finish();
}

namespace {

// Collective. Measures the latency of a few bytes, and the time that more of them add. Returns what
// a link carries during the latency; the largest number of all ranks, so all have the same.
double measure(Messenger& messages) {
  constexpr int kRounds = 3;
  constexpr size_t kNumbers = 4096;
  std::vector<double> numbers(kNumbers);
  const ReduceFunctions& largest = reduction("all_reduce", DType::Float64, ReduceOp::Max);
  const auto seconds_of = [&](size_t count) {
    double best = INFINITY;  // the first one waits until all ranks have come
    for (int round = 0; round < kRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      exchange_all_reduce(messages, numbers.data(), count, largest, kWholeChunk);
      best = std::min(best, seconds_since(start));
    }
    return best;
  };
  const double latency = seconds_of(1);
  const double for_more = std::max(seconds_of(kNumbers) - latency, 1e-9);
  double bytes = latency / for_more * (messages.size() - 1) * kNumbers * sizeof(double);
  exchange_all_reduce(messages, &bytes, 1, largest, kWholeChunk);
  return bytes;
}

// Exchange saves a latency, and sends (size-1) (size-2)/size times the bytes more. So it takes less
// time if a link carries these during its latency. Both give the same bits, so a clock may decide.
bool is_exchanged(Messenger& messages, size_t bytes) {
  const int size = messages.size();
  if (size <= 2) return true;
  if (size > kMostDirect) return is_small(bytes, size);
  const double more = static_cast<double>(bytes) * (size - 1) * (size - 2) / size;
  // So it is on every link that is worth it, and need not be measured.
  if (more <= 4 << 10) return true;
  if (more > 4 << 20) return false;
  double& under_way = messages.bytes_under_way();
  if (under_way < 0) under_way = measure(messages);
  return more <= under_way;
}

}  // namespace

void all_reduce(Messenger& messages, AllReduceAlgorithm way, void* x, size_t count,
                const ReduceFunctions& reduction, size_t segment_bytes) {
  if (way == AllReduceAlgorithm::GatherBroadcast)
    return gather_broadcast_all_reduce(messages, x, count, reduction);
  if (way == AllReduceAlgorithm::Exchange ||
      (way == AllReduceAlgorithm::Auto && is_exchanged(messages, count * reduction.item_bytes)))
    return exchange_all_reduce(messages, x, count, reduction, segment_bytes);
  if (way == AllReduceAlgorithm::Direct || messages.size() <= kMostDirect)
    return direct_all_reduce(messages, x, count, reduction, segment_bytes);
  ring_all_reduce(messages, x, count, reduction, segment_bytes);
}

}  // namespace ringgrad
