#include "ringgrad/autograd/conv_batch_norm.h"

#include <typeinfo>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/nn/basic_layers.h"

namespace ringgrad::nn {

struct ConvBatchNorm {
  // Returns true if neither module does more than its operation: conv2d() without a bias, and
  // batch_norm(), which SyncBatchNorm replaces.
  static bool are_plain(const Conv2d& conv, const BatchNorm& norm) {
    using Operation = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const BatchNormOptions&);
    const Operation* const operation = norm.normalization_.target<Operation>();
    return typeid(conv) == typeid(Conv2d) && conv.just_forwards() && !conv.bias &&
           typeid(norm) == typeid(BatchNorm2d) && norm.just_forwards() && operation &&
           *operation == batch_norm;
  }

  static Tensor call(Conv2d& conv, BatchNorm& norm, const Tensor& x,
                     const BatchNormFusion& fusion) {
    if (!norm.is_training() || !x || x.dim() != 4 || !are_plain(conv, norm))
      return norm(conv(x), fusion);
    if (program_observer) program_observer->mode("batch_norm", true);
    return conv2d_batch_norm(x, conv.weight,
                             {norm.weight, norm.bias, norm.running_mean, norm.running_var},
                             conv.options_,
                             {.momentum = norm.options_.momentum,
                              .eps = norm.options_.eps,
                              .activation = fusion.activation,
                              .residual = fusion.residual,
                              .max_pool = fusion.max_pool,
                              .batches = norm.num_batches_tracked});
  }
};

BEFORE_MAIN(convolutions_with_batch_norm, conv_batch_norm = ConvBatchNorm::call);

}  // namespace ringgrad::nn
