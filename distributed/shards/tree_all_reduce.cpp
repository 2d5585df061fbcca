#include "ringgrad/distributed/shards/tree_all_reduce.h"

#include <algorithm>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {
namespace {

// Then a second message would take longer than the others' slices.
constexpr int64_t kSmallBytes = 16 << 10;

// Elements [begin, end) of a contiguous tensor.
Tensor part_of(const Tensor& flat, RowRange range) {
  return flat.as_strided({range.size()}, {1}, flat.storage_offset() + range.begin);
}

RowRange slice_of(int64_t numel, int ranks, int rank) {
  const Range own = chunk_of({0, static_cast<size_t>(numel)}, ranks, rank);
  return {static_cast<int64_t>(own.begin), static_cast<int64_t>(own.end)};
}

// Returns these elements of all partial sums, [partial sums, elements].
Tensor stacked(const std::vector<Tensor>& sums, RowRange range) {
  const auto count = static_cast<int64_t>(sums.size());
  if (count == 1)
    return part_of(sums[0], range)
        .as_strided({1, range.size()}, {range.size(), 1}, sums[0].storage_offset() + range.begin);
  const Tensor rows = empty({count, range.size()}, {sums[0].dtype(), sums[0].device()});
  for (int64_t i = 0; i < count; ++i)
    kernels::copy(part_of(rows, {i * range.size(), (i + 1) * range.size()}),
                  part_of(sums[i], range));
  return rows;
}

}  // namespace

Tensor sum_of(const Tensor& left, const Tensor& right) {
  const Tensor sum = empty(left.shape(), {left.dtype(), left.device()});
  kernels::add(sum, left, right);
  return sum;
}

TreeAllReduce::TreeAllReduce(ProcessGroup& group, int shards) : group_(group), shards_(shards) {
  for (int r = 0; r < group.size(); ++r)
    partials_.push_back(partial_sums_of(shards_of_rank(r, group.size(), shards), shards));
}

TreeAllReduce::Sum TreeAllReduce::start(std::vector<Tensor> own, CollectiveOptions options,
                                        bool own_slice_only) const {
  options.async = true;
  Sum sum{std::move(own), {}, false, own_slice_only, std::move(options), {}};
  const int ranks = group_.size();
  if (ranks == 1) return sum;
  const Tensor& last = sum.own.back();
  if (ranks == 2 && partials_[0].size() == 1 && partials_[1].size() == 1) {
    sum.work = own_slice_only ? group_.reduce_slices(last, ReduceOp::Sum, sum.options)
                              : group_.all_reduce(last, ReduceOp::Sum, sum.options);
    return sum;
  }
  const int64_t numel = last.numel();
  sum.in_slices = numel * static_cast<int64_t>(itemsize(last.dtype())) > kSmallBytes;
  const auto range_of = [&](int rank) {
    return sum.in_slices ? slice_of(numel, ranks, rank) : RowRange{0, numel};
  };
  for (int r = 0; r < ranks; ++r)
    sum.received.push_back(
        empty({static_cast<int64_t>(partials_[r].size()), range_of(group_.rank()).size()},
              {last.dtype(), last.device()}));
  if (!sum.in_slices) {
    sum.work = group_.all_gather(sum.received, stacked(sum.own, {0, numel}), sum.options);
    return sum;
  }
  std::vector<Tensor> to;
  for (int r = 0; r < ranks; ++r) to.push_back(stacked(sum.own, range_of(r)));
  sum.work = group_.all_to_all(sum.received, to, sum.options);
  return sum;
}

void TreeAllReduce::fold(Sum& sum) const {
  if (sum.received.empty()) return;
  sum.work.wait();
  std::vector<PartialSum<Tensor>> sums;
  for (size_t r = 0; r < partials_.size(); ++r) {
    const int64_t numel = sum.received[r].size(1);
    for (size_t i = 0; i < partials_[r].size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      join(sums, {partials_[r][i], part_of(sum.received[r], {row * numel, (row + 1) * numel})},
           shards_, sum_of);
    }
  }
  const Tensor& total = sums.front().value;
  const Tensor& last = sum.own.back();
  sum.received.clear();
  if (!sum.in_slices) {
    kernels::copy(last, total);
    sum.work = {};
    return;
  }
  if (sum.own_slice_only) {
    kernels::copy(part_of(last, slice_of(last.numel(), group_.size(), group_.rank())), total);
    sum.work = {};
    return;
  }
  std::vector<Tensor> slices;
  for (int r = 0; r < group_.size(); ++r)
    slices.push_back(part_of(last, slice_of(last.numel(), group_.size(), r)));
  sum.work = group_.all_gather(slices, total, sum.options);
}

}  // namespace ringgrad
