// Batch norm's arguments in the form that kernels take. Private to autograd/ops.
#pragma once

#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

// The arguments of batch norm's kernels. Everything per channel has one dtype. mean and var hold
// the statistics, or will hold them.
struct BatchNormArguments {
  Tensor x;
  Tensor weight;
  Tensor bias;
  Tensor mean;
  Tensor var;

  BatchNormArguments(const Tensor& x_, const Tensor& weight_, const Tensor& bias_,
                     const Tensor& running_mean, const Tensor& running_var, bool training)
      : x(x_) {
    const DType per_channel = accumulator_dtype(x.dtype());
    if (weight_) weight = strided_contiguous(to(weight_, per_channel));
    if (bias_) bias = strided_contiguous(to(bias_, per_channel));
    mean =
        training ? empty({x.size(1)}, {per_channel, x.device()}) : strided_contiguous(running_mean);
    var = training ? empty_like(mean) : strided_contiguous(running_var);
  }
};

// Batch norm followed by max pooling in one pass. Null unless a file registers it.
using BatchNormMaxPool = Tensor (*)(const BatchNormArguments& in,
                                    const kernels::RunningStatistics& running,
                                    const BatchNormOptions& options);
extern constinit BatchNormMaxPool batch_norm_max_pool;

// Runs batch norm again in a wider range if a variance has left the dtype's range; returns an
// undefined tensor if none has. Null unless a file registers it. Without it such a channel's result
// is its bias.
using BatchNormInRange = Tensor (*)(const BatchNormArguments& in, BatchNormOptions options);
extern constinit BatchNormInRange batch_norm_in_range;

}  // namespace ringgrad
