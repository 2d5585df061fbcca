// The networks.
#pragma once

#include "ringgrad/models/convnet.h"
#include "ringgrad/models/lenet.h"
#include "ringgrad/models/resnet.h"
