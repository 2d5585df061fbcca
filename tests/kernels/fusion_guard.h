// Chooses for a while whether convolutions sum for the batch norms beside them.
#pragma once

#include "ringgrad/core/kernels/conv_batch_norm.h"

namespace ringgrad::test {

class FusionGuard {
 public:
  FusionGuard(Fusion statistics, Fusion gradients) {
    conv_batch_norm_fusions = {statistics, gradients};
  }
  ~FusionGuard() { conv_batch_norm_fusions = before_; }
  FusionGuard(const FusionGuard&) = delete;

 private:
  const ConvBatchNormFusions before_ = conv_batch_norm_fusions;
};

}  // namespace ringgrad::test
