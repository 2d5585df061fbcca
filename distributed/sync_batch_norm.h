// Batch normalisation over the samples of all ranks, as if one rank had them all.
#pragma once

#include "ringgrad/autograd/ops.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/nn/module.h"

namespace ringgrad {

// In training: batch_norm() with mean and variance over all ranks' x. Ranks may have different
// numbers of samples, or none. It is collective, in forward and backward: one all_gather of 2 C + 1
// numbers, and one all_reduce of 2 C, where x is. For a GPU the hosts also exchange their numbers
// of samples, and wait for nothing else. Replays of a captured step use those that were recorded.
// The gradient is that of the mean loss over the ranks, weighted as
// DistributedDataParallel does, or by samples without one. The gradients of weight and bias are
// this rank's part.
//
// In evaluation: batch_norm(). Throws as batch_norm() does, but one value per channel is enough
// here if all ranks together have two.
Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormOptions& options, ProcessGroup& group);

// Collective. Makes every BatchNorm2d in `module` use sync_batch_norm(), and returns their number.
// Their messages use a group of their own, split off `group`, so they need no order among other
// collectives, such as those of gradients that only one rank has. On GPUs they use `group` itself,
// and need that order. `group` must outlive the module.
//
// All ranks must call the same layers equally often. Another layer's statistics are an
// OutOfStepError, which names the layer of each rank. A layer that no other rank calls ends with
// the timeout. A rank that has run out of data cannot shadow such a network, because its forward is
// collective, too.
int convert_sync_batchnorm(nn::Module& module, ProcessGroup& group);

}  // namespace ringgrad
