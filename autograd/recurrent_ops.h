// Recurrent layers: all steps of one layer in one direction are one node of the tape. The products
// of the inputs and their weights do not depend on each other. The caller computes them by one
// linear() for all steps. nn/recurrent.h has the modules.
//
// x [T, N, G H] holds the inputs' parts of the gates, with their biases, for T steps and N samples.
// h and c [N, H] are the initial state; undefined means 0. weight is [G H, H], bias [G H] or
// undefined. With `reverse` the steps go from the last to the first. The result is y [T, N, H] and
// the last state. Autocast decides x's dtype, in which everything is computed. Throws ShapeError,
// DTypeError, DeviceError.
//
// The samples may end at different steps (nn/packed_sequence.h). Then step t has the first
// batch_sizes[t] samples, which do not increase. x is [R, G H], the rows of step 0, of step 1, …,
// and y [R, H]. The last state of a sample is that of its own last step; with `reverse` it begins
// there.
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct RecurrentResult {
  Tensor y;
  Tensor h;
  Tensor c;  // for lstm_layer() only
};

// G = 4: gates i, f, g, o (Hochreiter & Schmidhuber 1997).
RecurrentResult lstm_layer(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                           Flag reverse = false, const std::vector<int64_t>& batch_sizes = {});
// G = 3: gates r, z, n (Cho et al. 2014). The bias is that of the state; r multiplies its part of
// n.
RecurrentResult gru_layer(const Tensor& x, const Tensor& h, const Tensor& weight,
                          const Tensor& bias = {}, Flag reverse = false,
                          const std::vector<int64_t>& batch_sizes = {});
// G = 1: h = tanh(x + h weightᵀ), or relu (Elman 1990).
enum class RecurrentActivation : uint8_t { Tanh, Relu };
RecurrentResult rnn_layer(const Tensor& x, const Tensor& h, const Tensor& weight,
                          RecurrentActivation activation = RecurrentActivation::Tanh,
                          Flag reverse = false, const std::vector<int64_t>& batch_sizes = {});

}  // namespace ringgrad
