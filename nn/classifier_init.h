// Initial values of the weights of a convolutional classifier; init.h has all. The functions draw
// from the default generator of the tensor's device, so the same seed gives the same model. They
// write in place without history.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad::nn::init {

// The number of inputs that one output sums, and the number of outputs that one input enters. A
// weight [out, in, R, S…] has in·R·S and out·R·S. Throws ShapeError below two dimensions.
struct Fans {
  int64_t in;
  int64_t out;
};
Fans fans(const Tensor& weight);

enum class FanMode { FanIn, FanOut };
struct KaimingOptions {
  double negative_slope = 0;      // the following leaky ReLU's; 0 for ReLU
  FanMode mode = FanMode::FanIn;  // the pass whose variance is preserved: forward or backward
};

// He et al. 2015 ("Delving Deep into Rectifiers"), equations 10 and 14: std = sqrt(2 / ((1 +
// slope²) fan)). The uniform version draws from ± sqrt(3) std.
void kaiming_normal_(const Tensor& weight, KaimingOptions options = {});
void kaiming_uniform_(const Tensor& weight, KaimingOptions options = {});

// PyTorch's default for linear and convolutional layers: weight and bias are uniform in ±
// 1/sqrt(fan_in), which is kaiming_uniform_ with slope sqrt(5). The bias may be undefined.
void layer_default_(const Tensor& weight, const Tensor& bias);

}  // namespace ringgrad::nn::init
