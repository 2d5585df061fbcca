// ShardTree: the order in which the shards of a batch are added up, and the shards of each rank.
//
// A batch is cut into V shards. Each shard has a summand: its gradient, its loss, its running
// statistics. A binary tree over the shards' numbers says how they are added. The node of shards
// [a, b) is the sum of its two halves; the left half is as large as the largest power of two below
// b - a. The root is [0, V). A rank has a range of neighbouring shards, of any size, and adds the
// halves that it has. A sum whose other half it lacks is a *partial sum*, which waits for those of
// other ranks. join() is the only place where two summands become one.
//
// Note [Why the bits cannot differ]
// Claim: weights, buffers, losses and metrics are functions of the data, the recipe, the seed and
// V. They do not depend on the number of ranks, on their transport or on their threads.
//
// One step, from equal state everywhere.
// (1) A shard's summands depend on the state and the shard alone. Its samples follow from the
//     sampler's order and from rows_of(), its random numbers from seed, step and shard. It begins
//     with no gradient, and with the buffers as they were before the step; kernels split by index,
//     never by thread. A parameter that it does not reach counts as zero.
// (2) Every partial sum is the value of a node of the tree. It holds for one shard; join() adds
//     only two that are the halves of a node, left + right, which is that node's value by
//     definition.
// (3) In the end only the root remains. Suppose ranges that are nodes and cover [0, V) come to
//     join() in order, and several remain. Let X be a deepest one of them, and S its sibling. We
//     show that S remains, too, although join() would have joined the two. Remaining ranges cover
//     S. One inside S would be deeper than X. One larger than S would contain the parent of both,
//     and overlap with X. So S itself remains. But when the right one of the two came, the left one
//     was last in the list, and they were joined: a contradiction.
// (4) So the total is the root's value, whatever ranges came. (3) holds for a rank's shards and for
//     all ranks' partial sums, and a join may happen on any rank, because the sum of two floats has
//     one result. Transports carry bits and add nothing. Elements are added one by one, so it does
//     not matter where a transport cuts a buffer. (With two ranks of one partial sum each, the
//     group adds left + right or right + left, which is the same.)
// (5) Every rank divides by the batch's size and takes the optimizer's step, on arrays with the
//     same layout, since the order of parameters follows from the model. So the state is equal
//     again.
//
// With 6 shards the total is ((0 + 1) + (2 + 3)) + (4 + 5). Three ranks hold 0 + 1, 2 + 3 and
// 4 + 5. Of two ranks the first holds 0 + 1 and 2, the second 3 and 4 + 5; so 2 and 3 travel apart.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ringgrad {

struct ShardRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

// Those of rank r: each rank has neighbouring ones, numbers of which differ by at most one.
// REQUIRES: ranks <= shards.
ShardRange shards_of_rank(int rank, int ranks, int shards);

// The rows [begin, end) of a batch that some shards have. Shards differ by at most one row, and the
// first ones have more.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
RowRange rows_of(ShardRange range, int shards, int64_t batch);

// Returns true if they are the two halves of a node.
bool are_halves(ShardRange left, ShardRange right, int shards);

template <class Value>
struct PartialSum {
  ShardRange shards;
  Value value;
};

// Appends the next partial sum, and joins it with the sums that it completes: add(left, right).
// REQUIRES: its shards are those of a node, and follow those of the last sum.
template <class Value, class Add>
void join(std::vector<PartialSum<Value>>& sums, PartialSum<Value> next, int shards,
          const Add& add) {
  while (!sums.empty() && are_halves(sums.back().shards, next.shards, shards)) {
    next = {{sums.back().shards.begin, next.shards.end}, add(sums.back().value, next.value)};
    sums.pop_back();
  }
  sums.push_back(std::move(next));
}

// Returns the partial sums of a rank that has added all that it can: at most 2 log2(shards), mostly
// one.
std::vector<ShardRange> partial_sums_of(ShardRange range, int shards);

}  // namespace ringgrad
