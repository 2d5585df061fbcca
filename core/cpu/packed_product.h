// The matrix product of float32 numbers by the register tiles under our convolutions (conv/gemm.h), on one thread.
// Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/eigen_gemm.h"

namespace ringgrad::cpu {

// to[column][row] = x, `side` places for each column: as a register tile reads a factor, zeros beyond the rows.
void pack(const Matrix<float>& x, int64_t side, float* to);

// Whether that is faster than Eigen's: not for vectors and other thin matrices, which are read faster than copied.
bool suits_packed_product(int64_t rows, int64_t columns, int64_t terms);

// The floats of scratch memory that a product needs.
int64_t packed_product_memory();

// c [M, N] (+)= a [M, K] b [K, N]. An element is the sum of the sums of at most 128 terms each, in order: it depends on
// nothing else, nor on other elements. REQUIRES: K > 0, c is not transposed and overlaps neither a nor b.
void packed_product(const Matrix<float>& c, const Matrix<float>& a, const Matrix<float>& b, bool accumulate,
                    float* memory);

}  // namespace ringgrad::cpu
