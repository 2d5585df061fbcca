// The matrix product of bfloat16 numbers as products of tiles (tile_unit.h).
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad::amx {

// c [B, M, N] = a [B, M, K] · b [B, K, N] + bias [N]. The bias may be undefined and has any
// floating dtype. c is contiguous; a and b have any strides. Products are exact; sums are float32
// and rounded once. REQUIRES: bfloat16; tiles() is not None. The result does not depend on the
// number of threads, nor on whether the tiles are emulated.
void matmul(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace ringgrad::amx
