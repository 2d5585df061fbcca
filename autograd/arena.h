// The flat arena of a set of parameters: one array for all values and one for all gradients. Each
// parameter and its grad are views of them.
//
// The arena makes a training step cheap. zero_grad is one fill, an optimizer step one kernel and a
// checkpoint one write. A bucket of the distributed reducer is a range, so nothing is packed or
// copied. Parameters lie in the reverse order of their registration, which is about the order in
// which backward finishes them. So the buckets at the front are complete first.
//
// There is no registry. The layout is a property of the tensors and is read from them.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// A range of neighbouring parameters as flat arrays. The gaps between parameters hold zeros.
struct ArenaRange {
  // Positions in the list given to arena_ranges, in the order of the arena.
  std::vector<int> parameters;
  // The beginning of each parameter, in elements from the range's beginning.
  std::vector<int64_t> offsets;
  // Both have shape [n].
  Tensor values;
  Tensor grads;
};

// The distance between the beginnings of neighbouring parameters is a multiple of this number of
// elements: a cache line of float32.
inline constexpr int64_t kArenaAlignment = 16;

// Moves the parameters into arenas, one for each dtype and device, in the reverse of the given
// order. Values and existing gradients move, and every handle of a parameter follows. Values that
// already lie in such an arena stay where they are. `allocate` makes the zeroed flat array for the
// gradients, for example in shared memory; the default is zeros(). Without `allocate`, nothing is
// done if arena_ranges() already gives one range for each dtype and device. Throws Error if two
// parameters overlap in memory, because they would be independent afterwards.
using AllocateGrads = std::function<Tensor(int64_t numel, TensorOptions options)>;
void flatten_parameters(const std::vector<Tensor>& parameters, const AllocateGrads& allocate = {});

// Returns the parameters as few ranges as their positions in memory allow, values and gradients
// alike. A parameter without a gradient gets a zeroed one. Tensors that are not contiguous become
// so.
std::vector<ArenaRange> arena_ranges(const std::vector<Tensor>& parameters);

}  // namespace ringgrad
