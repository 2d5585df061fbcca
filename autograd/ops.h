// Every public operation.
#pragma once

#include "autograd/ops/activation.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/conv.h"
#include "autograd/ops/convert.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/pool.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/view.h"
