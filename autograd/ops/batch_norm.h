// Batch norm with its arguments as kernels take them. Private to autograd/ops.
#pragma once

#include "ringgrad/autograd/ops/common.h"

namespace ringgrad {

// What batch norm's kernels take: everything per channel in one dtype, and where the statistics
// are, or will be.
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

// Batch norm and the max pooling behind it in one pass: registered by what has it, else null.
using BatchNormMaxPool = Tensor (*)(const BatchNormArguments& in,
                                    const kernels::RunningStatistics& running,
                                    const BatchNormOptions& options);
extern constinit BatchNormMaxPool batch_norm_max_pool;

// Batch norm once more, in a wider range, where a variance has left that of the dtype; undefined
// where none has. Registered likewise. Without it such a channel's result is its bias.
using BatchNormInRange = Tensor (*)(const BatchNormArguments& in, const Tensor& x,
                                    const Tensor& weight, const Tensor& bias,
                                    const Tensor& running_mean, const Tensor& running_var,
                                    BatchNormOptions options);
extern constinit BatchNormInRange batch_norm_in_range;

}  // namespace ringgrad
