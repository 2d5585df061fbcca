// All of the library except its networks (models.h), like libtorch's <torch/torch.h>. The headers
// below include it by part.
#pragma once

#include "ringgrad/data.h"
#include "ringgrad/distributed.h"
#include "ringgrad/nn.h"
#include "ringgrad/tensor.h"
