// PowerSGD (Vogels, Karimireddy & Jaggi 2019): gradients travel as two thin matrices, for networks
// between machines.
#pragma once

#include "ringgrad/distributed/comm_hook.h"

namespace ringgrad {

// A bucket of n gradients, seen as a square matrix M, is replaced by P Qᵀ with so many columns. One
// step of subspace iteration from the last step's Q finds it, as the nearest such matrix to the
// ranks' average. The part of a rank's M that it lacks is added to the rank's next gradients (error
// feedback). These are algorithms 1 and 2 of the paper, applied to a whole bucket, as in PyTorch's
// batched_powerSGD_hook.
//
// 2 columns / √n of the bytes travel. A bucket is averaged plainly if that is half or more, or if
// it is not of float32 or float64.
//
// M and Q are each rank's own. To go on from a checkpoint with the same bits, save and load every
// rank's DistributedDataParallel::comm_hook_state(). Gradients that are not finite stay so, and
// leave nothing in the state. Throws Error for no columns.
CommHook powersgd_hook(Int64 columns = 4);

}  // namespace ringgrad
