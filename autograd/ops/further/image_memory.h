// Channel-blocked images as the strided array that their memory is, so that what is written for
// strides keeps their layout.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The memory of channel-blocked images, [N, ⌈C/16⌉, H W, 16], and the channel-blocked images of
// this shape whose memory is given: recorded in the graph. REQUIRES: what is no channel is 0, in
// gradients, too.
Tensor memory_in(const Tensor& images);
Tensor images_in(const Tensor& memory, const Shape& shape);

}  // namespace ringgrad
