#include "ringgrad/nn/linear.h"

#include "ringgrad/autograd/ops/matmul.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"

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
