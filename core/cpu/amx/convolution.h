// Direct convolutions of bfloat16 images as products of tiles (tile_unit.h), for every filter size,
// stride, padding and number of channels. The same contract as their namesakes in conv/direct.h;
// products are exact, sums are float32. REQUIRES: amx::tiles() is not None. Results depend neither
// on the number of threads nor on whose tiles they are.
#pragma once

#include "ringgrad/core/cpu/conv/direct.h"

namespace ringgrad::amx {

// Forward pass or data gradient. REQUIRES: blocked images.
void convolution(const conv::DirectProblem& problem, const bfloat16* x, const float* w,
                 const float* bias, const bfloat16* addend, bfloat16* y);

// REQUIRES: direction Forward.
void weight_gradient(const conv::DirectProblem& problem, const bfloat16* x, const bfloat16* dy,
                     float* dw);

}  // namespace ringgrad::amx
