// The warp-wide matrix instructions, with the fragment layouts of the PTX ISA ("Matrix Fragments for mma.m16n8k16" and
// "Warp-level matrix load instruction: ldmatrix"). Kernels reach them through common/mma.cuh.
#pragma once

#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

using ToFloat = float (*)(uint16_t bits);

// mma.sync.aligned.m16n8k16.row.col.f32: d [16, 8] += a [16, 16] · b [16, 8]; every lane passes its part. `to_float`
// reads the 16-bit type of a and b.
void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], ToFloat to_float, Site site);

// ldmatrix.sync.aligned.m8n8.x4(.trans).shared.b16: four 8 × 8 matrices of 16-bit elements; lane i passes the address
// of row i % 8 of matrix i / 8, aligned to 16 bytes.
void ldmatrix_x4(unsigned (&fragment)[4], const void* row, bool transpose, Site site);

}  // namespace ringgrad::emulator
