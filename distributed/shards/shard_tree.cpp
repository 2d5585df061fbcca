#include "ringgrad/distributed/shards/shard_tree.h"

#include <algorithm>
#include <bit>

namespace ringgrad {

ShardRange shards_of_rank(int rank, int ranks, int shards) {
  const auto edge = [&](int r) { return static_cast<int>(int64_t{shards} * r / ranks); };
  return {edge(rank), edge(rank + 1)};
}

RowRange rows_of(ShardRange range, int shards, int64_t batch) {
  const auto edge = [&](int64_t shard) {
    return shard * (batch / shards) + std::min(shard, batch % shards);
  };
  return {edge(range.begin), edge(range.end)};
}

bool are_halves(ShardRange left, ShardRange right, int shards) {
  const auto half = static_cast<unsigned>(left.size());
  const int whole = 2 * left.size();
  return left.end == right.begin && std::has_single_bit(half) && left.begin % whole == 0 &&
         right.end == std::min(left.begin + whole, shards);
}

std::vector<ShardRange> partial_sums_of(ShardRange range, int shards) {
  std::vector<PartialSum<int>> sums;
  for (int shard = range.begin; shard < range.end; ++shard)
    join(sums, {{shard, shard + 1}, 0}, shards, [](int, int) { return 0; });
  std::vector<ShardRange> ranges;
  for (const auto& sum : sums) ranges.push_back(sum.shards);
  return ranges;
}

}  // namespace ringgrad
