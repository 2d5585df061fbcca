#include "nn/linear.h"

#include "autograd/ops/matmul.h"
#include "core/check.h"
#include "core/factory.h"
#include "nn/init.h"

namespace ringgrad::nn {

Linear::Linear(int64_t in_features, int64_t out_features, LinearOptions options) {
  CHECK(in_features > 0 && out_features > 0, "Linear: ", in_features, " input and ", out_features,
        " output features, expected at least 1");
  weight = register_parameter("weight", empty({out_features, in_features}));
  if (options.bias) bias = register_parameter("bias", empty({out_features}));
  init::layer_default_(weight, bias);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

}  // namespace ringgrad::nn
