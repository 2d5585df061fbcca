// Running the tape backwards: Tensor::backward() is the entry. Several threads may call it at once for graphs that
// share nothing, leaves included.
#pragma once

#include <functional>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Runs `callback` on the thread that called backward(), after the last node and before backward() returns. May be
// called only during a backward pass, from a hook or a closure; an exception from it leaves backward(). Where the pass
// itself fails, the callbacks are dropped.
void queue_final_callback(std::function<void()> callback);

}  // namespace ringgrad
