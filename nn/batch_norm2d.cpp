#include "ringgrad/nn/batch_norm2d.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/in_place.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::nn {

BatchNorm2d::BatchNorm2d(int64_t features, BatchNorm2dOptions options) : options_(options) {
  CHECK(features > 0, "BatchNorm2d: ", features, " features, expected at least 1");
  if (options.affine) {
    weight = register_parameter("weight", ones({features}));
    bias = register_parameter("bias", zeros({features}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", zeros({features}));
    running_var = register_buffer("running_var", ones({features}));
    num_batches_tracked = register_buffer("num_batches_tracked", zeros({}, {.dtype = DType::Int64}));
  }
}

Tensor BatchNorm2d::forward(const Tensor& x, const BatchNormFusion& fusion) {
  CHECK(x.defined(), "BatchNorm2d: the input is an undefined tensor, expected [N, C, H, W]");
  CHECK_AS(ShapeError, x.dim() == 4, "BatchNorm2d: the input has shape ", x.shape(), ", expected [N, C, H, W]");
  const Tensor y = normalization_(x, weight, bias, running_mean, running_var,
                                  {.training = is_training() || !options_.track_running_stats,
                                   .momentum = options_.momentum,
                                   .eps = options_.eps,
                                   .activation = fusion.activation,
                                   .residual = fusion.residual});
  if (is_training() && num_batches_tracked) {  // last: nothing has changed if that threw
    begin_write("BatchNorm2d", num_batches_tracked);
    kernels::affine(num_batches_tracked, num_batches_tracked, 1, 1);
  }
  return y;
}

}  // namespace ringgrad::nn
