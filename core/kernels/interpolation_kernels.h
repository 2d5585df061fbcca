// THE CONTRACT of interpolation. As in core/kernels.h.
#pragma once

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// An output is the weighted sum of places along an axis: output i of those from begin[i] to
// begin[i + 1], in their order. begin int64 [outputs + 1]; index int64; weight of
// the images' dtype.
struct AxisWeights {
  Tensor begin;
  Tensor index;
  Tensor weight;
};

namespace kernels {

// x [O, H, W, I], y [O, P, Q, I], float32 or float64, contiguous: weighted sums of x's rows, and of
// their pixels,
//   y[o, p, q, i] = Σ_k columns.weight[k] Σ_j rows.weight[j] x[o, rows.index[j], columns.index[k],
//   i]
// over the places j of p and k of q. The gradient is such sums, too.
inline constinit Kernel<void(const Tensor& y, const Tensor& x, const AxisWeights& rows,
                             const AxisWeights& columns)>
    interpolate{"interpolate"};

}  // namespace kernels
}  // namespace ringgrad
