// The flat arena of a set of parameters: one array for all values, one for all gradients, and each
// parameter and its grad a view of them.
//
// It is what makes a training step cheap: zero_grad is one fill, an optimizer step one kernel, a
// bucket of the distributed reducer a range (nothing is packed or copied), a checkpoint one write.
// Parameters lie in the reverse of their registration, which is about the order in which backward
// finishes them, so buckets at the front are complete first.
//
// There is no registry: the layout is a property of the tensors themselves, and is read from them.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// A range of neighbouring parameters, as flat arrays over them and the gaps between them (which
// hold zeros).
struct ArenaRange {
  // Positions in the list given to arena_ranges, in the order of the arena.
  std::vector<int> parameters;
  // Each one's beginning, counted from the range's, in elements.
  std::vector<int64_t> offsets;
  // Both [n].
  Tensor values;
  Tensor grads;
};

// Elements between one parameter's beginning and the next's are a multiple of this: a cache line of
// float32.
inline constexpr int64_t kArenaAlignment = 16;

// Lays the parameters into arenas, one for each dtype and device, in the reverse of the given
// order. Values and existing gradients move, and every handle of a parameter follows. `allocate`
// makes the zeroed flat array for the gradients (shared memory, say), by default with zeros().
// Values that lie in such an arena already stay where they are. Without `allocate`, nothing is done
// if arena_ranges() already gives one range for each dtype and device. Throws Error if two
// parameters overlap in memory, because they would be independent afterwards.
using AllocateGrads = std::function<Tensor(int64_t numel, TensorOptions options)>;
void flatten_parameters(const std::vector<Tensor>& parameters, const AllocateGrads& allocate = {});

// The parameters as few ranges as their places in memory allow, values and gradients alike. A
// parameter without a gradient gets a zeroed one of its own; what is not contiguous is made so.
std::vector<ArenaRange> arena_ranges(const std::vector<Tensor>& parameters);

}  // namespace ringgrad
