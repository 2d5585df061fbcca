// Tensors, their operations, and gradients.
#pragma once

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
