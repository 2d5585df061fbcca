// THE CONTRACT of recurrent networks: the work on a step's gates after the matrix products. The
// rules are those of core/kernels/classifier_kernels.h.
#pragma once

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::kernels {

#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// All arrays are contiguous; their rows are the samples.
//
// LSTM (Hochreiter & Schmidhuber 1997), as in PyTorch. x and r [N, 4 H] are the parts of the gates
// i, f, g, o that come from the input and from the previous state, biases included.
//   i, f, o = sigmoid(x + r);  g = tanh(x + r);  c = f c_before + i g;  h = o tanh(c)
// gates [N, 4 H] keeps i, f, g and o for backward. h, c, c_before [N, H].
KERNEL(lstm_cell, (const Tensor& h, const Tensor& c, const Tensor& gates, const Tensor& x,
                   const Tensor& r, const Tensor& c_before));
// dx [N, 4 H] is also the gradient of r; dc_before [N, H]. dc comes from the following step, and
// may be dc_before's array.
KERNEL(lstm_cell_backward,
       (const Tensor& dx, const Tensor& dc_before, const Tensor& dh, const Tensor& dc,
        const Tensor& gates, const Tensor& c_before, const Tensor& c));

// GRU (Cho et al. 2014), as in PyTorch. x and r [N, 3 H] are the parts of the gates r, z, n.
//   r, z = sigmoid(x + r);  n = tanh(x + r · r's part of n);  h = (1 - z) n + z h_before
// gates [N, 4 H] keeps r, z, n, and r's part of n.
KERNEL(gru_cell, (const Tensor& h, const Tensor& gates, const Tensor& x, const Tensor& r,
                  const Tensor& h_before));
// dx and dr [N, 3 H]. dh_before [N, H] is the part that bypasses the gates.
KERNEL(gru_cell_backward, (const Tensor& dx, const Tensor& dr, const Tensor& dh_before,
                           const Tensor& dh, const Tensor& gates, const Tensor& h_before));

#undef KERNEL

}  // namespace ringgrad::kernels
