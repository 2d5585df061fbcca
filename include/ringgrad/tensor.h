// Tensors, their operations, and gradients.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13 && defined(__AVX__) && \
    defined(__OPTIMIZE__) && !defined(RINGGRAD_WITHOUT_SLP)
#error \
    "g++ 12 makes {1, 1, 1, 1} of {1, 1, 0, 0}: add -fno-tree-slp-vectorize -DRINGGRAD_WITHOUT_SLP"
#endif

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
