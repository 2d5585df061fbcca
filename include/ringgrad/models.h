// The networks.
#pragma once

#include "ringgrad/models/convnet.h"
#include "ringgrad/models/resnet.h"
