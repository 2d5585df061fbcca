// PowerSGD (Vogels, Karimireddy & Jaggi 2019): gradients travel as two thin matrices, for networks
// between machines.
#pragma once

#include "ringgrad/distributed/comm_hook.h"

namespace ringgrad {

// A bucket of n gradients, seen as a square matrix M, becomes P Qᵀ of so many columns: the nearest
// to the ranks' average that one step of subspace iteration finds from the last step's Q. What that
// lacks of a rank's own M is added to its next gradients (error feedback). Algorithms 1 and 2 of
// the paper, on a whole bucket, as in PyTorch's batched_powerSGD_hook. 2 columns / √n of the bytes
// travel; a bucket of which that is no less than half, or not of float32 or float64, is averaged
// plainly.
//
// M and Q are each rank's own: to go on from a checkpoint with the same bits, save and load every
// rank's DistributedDataParallel::comm_hook_state(). Gradients that are not finite stay so, and
// leave nothing behind. Throws Error for no columns.
CommHook powersgd_hook(Int64 columns = 4);

}  // namespace ringgrad
