// Between contiguous [N, C, H, W] and channel-blocked [N, ⌈C/16⌉, H, W, 16] images, float32.
#pragma once

#include "ringgrad/core/cpu/conv/geometry.h"
#include "ringgrad/core/device.h"

namespace ringgrad::conv {

// Writes zeros into the padding channels.
void nchw_to_blocked(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w, const float* nchw, float* blocked);
void blocked_to_nchw(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w, const float* blocked, float* nchw);

}  // namespace ringgrad::conv
