// Plans the buckets: gradients that travel together.
//
// Gradients lie in flat arenas, about in the order in which backward finishes them, and never move.
// A bucket is a range of an arena: nothing is packed or copied, and a bucket is ready when the last
// parameter that reaches into it is.
#pragma once

#include <cstdint>
#include <vector>

#include "ringgrad/autograd/arena.h"

namespace ringgrad {

struct BucketRange {
  int arena;
  // in elements of the arena
  int64_t begin;
  int64_t end;
  std::vector<int> parameters;  // those that reach into it, in the order of the arena
};

// PyTorch's numbers (Li et al. 2020, section 4.2.2). There they are floors, which a bucket
// overshoots by up to one tensor; here they are caps, and a larger tensor is split. The first
// bucket is small, so that communication starts early.
struct BucketCaps {
  int64_t first_bytes = int64_t{1} << 20;
  int64_t bytes = int64_t{25} << 20;
  bool operator==(const BucketCaps&) const = default;
};

// Cuts the arenas' gradients into buckets, in the order in which they are expected to become ready.
// `ready_order` lists all parameters in that order. Ranks that pass the same arguments get the same
// order, and all launch their buckets in it. Throws Error unless the caps are positive. REQUIRES:
// the parameters of an arena lie in that order.
std::vector<BucketRange> plan_buckets(const std::vector<ArenaRange>& arenas,
                                      const std::vector<int>& ready_order, const BucketCaps& caps);

// Sorts buckets by when the last of their parameters is ready; equal ones stay as they are.
void sort_by_readiness(std::vector<BucketRange>& buckets, const std::vector<int>& ready_order);
// Returns the end of the arena's k-th parameter, with the gap after it.
int64_t end_in(const ArenaRange& arena, size_t k);

}  // namespace ringgrad
