// Every public operation.
#pragma once

#include "ringgrad/autograd/ops/activation.h"
#include "ringgrad/autograd/ops/arithmetic.h"
#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/autograd/ops/convert.h"
#include "ringgrad/autograd/ops/dropout.h"
#include "ringgrad/autograd/ops/indexing.h"
#include "ringgrad/autograd/ops/loss.h"
#include "ringgrad/autograd/ops/matmul.h"
#include "ringgrad/autograd/ops/norm.h"
#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/autograd/ops/reduce.h"
#include "ringgrad/autograd/ops/softmax.h"
#include "ringgrad/autograd/ops/view.h"
