// A convolution's operands and its three results by the CPU in double, for the tests of CUDA's.
#pragma once

#include "ringgrad/tests/cuda/cuda_kernels.h"

namespace ringgrad::test {

struct ConvCase {
  Shape x;
  Shape w;
  Conv2dOptions options;
  Shape y() const { return {x[0], w[0], options.out_h(x[2], w[2]), options.out_w(x[3], w[3])}; }
};

inline Tensor in_layout(const Tensor& x, bool channels_last) {
  if (!channels_last) return x;
  const Tensor y = empty(x.shape(), {.dtype = x.dtype(), .layout = Layout::ChannelsLast});
  kernels::copy(y, x);
  return y;
}

// By the CPU in double, which tests/kernels/cpu_conv2d_test.cpp and op_specs_conv.cpp check; and
// the same of absolute values. To dx, x itself is added.
struct ConvResults {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dw;
};
inline ConvResults by_cpu(const ConvCase& c, const Tensor& x, const Tensor& w, const Tensor& bias,
                          const Tensor& dy) {
  const Tensor y = empty(c.y(), {.dtype = DType::Float64});
  const Tensor dx = empty(c.x, y.options());
  const Tensor dw = empty(c.w, y.options());
  kernels::conv2d(y, in_double(x), in_double(w), in_double(bias), c.options);
  kernels::conv2d_backward_input(dx, in_double(dy), in_double(w), in_double(x), c.options);
  kernels::conv2d_backward_weight(dw, in_double(dy), in_double(x), c.options);
  return {values(y), values(dx), values(dw)};
}
struct ConvTerms {  // the number of terms of the longest sum of each
  int64_t y;
  int64_t dx;
  int64_t dw;
};
inline ConvTerms terms_of(const ConvCase& c) {
  return {c.w.numel() / c.w[0] + 1, c.w.numel() / c.w[1] + 1, c.y().numel() / c.y()[1]};
}

}  // namespace ringgrad::test
