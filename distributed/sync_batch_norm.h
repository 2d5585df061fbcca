// Batch normalisation over the samples of all ranks, as if one rank had them all.
#pragma once

#include "ringgrad/autograd/ops.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/nn/module.h"

namespace ringgrad {

// In training: batch_norm() with mean and variance over all ranks' x, which may have different
// numbers of samples, and none. Collective, forward and backward: one all_gather of 2 C +
// 1 numbers, and one all_reduce of 2 C, on the host, which waits for a GPU's statistics: such a
// step cannot be captured. The gradient is that of the mean loss over the ranks, weighed as
// DistributedDataParallel does, or by samples where there is none; those of weight and bias are
// this rank's part. In evaluation: batch_norm(). Throws as batch_norm(); one value per channel is
// enough here as long as all ranks together have two.
Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormOptions& options, ProcessGroup& group);

// Collective. Makes every BatchNorm2d in `module` use sync_batch_norm(), and returns how many there
// are. What they send goes over a group of their own, split off `group`, which must outlive the
// module: so it needs no order among other collectives, such as those of gradients that only one
// rank has. All ranks must come by the same layers, each as often: another layer's statistics are
// an OutOfStepError, on each rank in its layer's name; a layer for which no other rank comes ends
// with the timeout. A rank that ran out of data cannot shadow such a network: its forward is
// collective, too.
int convert_sync_batchnorm(nn::Module& module, ProcessGroup& group);

}  // namespace ringgrad
