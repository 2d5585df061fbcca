// Direct convolutions of bfloat16 images as products of tiles (tile_unit.h), for every filter size,
// stride, padding and number of channels. The contract is that of the functions of the same name in
// conv/direct.h. Products are exact, and sums are float32. REQUIRES: amx::tiles() is not None.
// Results do not depend on the number of threads, nor on whether the tiles are emulated.
#pragma once

#include "ringgrad/core/cpu/conv/direct.h"

namespace ringgrad::amx {

// Computes the forward pass or the data gradient. REQUIRES: blocked images.
void convolution(const conv::DirectProblem& problem, const bfloat16* x, const float* w,
                 const float* bias, const bfloat16* addend, bfloat16* y);

// REQUIRES: direction Forward.
void weight_gradient(const conv::DirectProblem& problem, const bfloat16* x, const bfloat16* dy,
                     float* dw);

}  // namespace ringgrad::amx
