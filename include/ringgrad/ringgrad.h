// All of the library but its networks (models.h), as libtorch's users have it from <torch/torch.h>;
// or by part.
#pragma once

#include "ringgrad/data.h"
#include "ringgrad/distributed.h"
#include "ringgrad/nn.h"
#include "ringgrad/tensor.h"
