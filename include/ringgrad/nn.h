// Networks and their training.
#pragma once

#include "ringgrad/nn/attention.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/losses.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/lbfgs.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/nn/optim/weight_average.h"
#include "ringgrad/nn/packed_sequence.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/nn/recurrent.h"
#include "ringgrad/tensor.h"
