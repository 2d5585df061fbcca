// Initial values of weights. All functions draw from the default generator of the tensor's device,
// so the same seed gives the same model. They write in place without history.
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

// Glorot & Bengio 2010, equation 16: std = gain sqrt(2 / (fan_in + fan_out)).
void xavier_normal_(const Tensor& weight, Real gain = 1);
void xavier_uniform_(const Tensor& weight, Real gain = 1);

// PyTorch's names for functions of core/random.h and core/factory.h.
void normal_(const Tensor& x, Real mean = 0, Real std = 1);
void uniform_(const Tensor& x, Real low = 0, Real high = 1);
void constant_(const Tensor& x, Real value);
inline void zeros_(const Tensor& x) { constant_(x, 0); }
inline void ones_(const Tensor& x) { constant_(x, 1); }

// Makes the rows (or the columns, if there are fewer) orthogonal and of length `gain`, uniformly
// distributed among all such (Saxe et al. 2014). A weight of more than two dimensions counts as
// [size(0), the rest].
void orthogonal_(const Tensor& weight, Real gain = 1);

// Makes output channel i a copy of input channel i: the filter has a 1 in the middle and 0
// elsewhere, as in PyTorch. For weights [out, in, R, S…]; throws ShapeError below three dimensions.
void dirac_(const Tensor& weight);

// Makes filters whose outputs on the patches of such images are uncorrelated and have variance 1.
// They are the eigenvectors of the patches' covariance (about 0), each divided by sqrt(its
// eigenvalue + eps), smallest eigenvalue first, followed by their negatives (Coates & Ng 2012; K.
// Jordan 2024, "94% on CIFAR-10 in 3.29 seconds", 3.2). weight is [2 C R S, C, R, S], images are
// [N, C, H, W] in any floating dtype. Throws ShapeError on other shapes.
void whitening_(const Tensor& weight, const Tensor& images, Real eps = 5e-4);

// PyTorch's default for linear and convolutional layers: weight and bias are uniform in ±
// 1/sqrt(fan_in), which is kaiming_uniform_ with slope sqrt(5). The bias may be undefined.
void layer_default_(const Tensor& weight, const Tensor& bias);

}  // namespace ringgrad::nn::init
