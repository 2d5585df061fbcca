// The shapes of a reduction. Private to autograd/ops/further.
#pragma once

#include <algorithm>
#include <array>

#include "ringgrad/core/error.h"
#include "ringgrad/core/shape.h"

namespace ringgrad {

// A tensor without dimensions counts as having one, as in PyTorch.
inline int reduced_dim(const char* operation, int d, int dim) {
  return normalize_dim(operation, d, std::max(dim, 1));
}

// x's shape with the reduced dimensions at size 1, and without them.
struct Reduced {
  Shape kept;
  Shape dropped;
  int64_t count = 1;  // elements that are reduced to one

  Reduced(const char* operation, const Shape& shape, const Dims& dims) : kept(shape) {
    std::array<bool, kMaxDims> reduced{};
    if (dims.empty()) reduced.fill(true);
    for (int d : dims) {
      d = reduced_dim(operation, d, shape.dim());
      if (reduced[d])
        throw ShapeError(
            str(operation, ": dimension ", d, " appears twice in the dimensions to reduce"));
      reduced[d] = true;
    }
    for (int d = 0; d < shape.dim(); ++d) {
      if (!reduced[d]) {
        dropped.push_back(shape[d]);
        continue;
      }
      count *= shape[d];
      kept[d] = 1;
    }
  }
};

}  // namespace ringgrad
