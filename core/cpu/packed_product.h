// The matrix product of float32 or bfloat16 numbers by the register tiles under our convolutions
// (conv/gemm.h), on one thread. Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

// to[column][row] = x, `side` places for each column: as a register tile reads a factor, zeros
// beyond the rows. Of bfloat16 numbers a place is a word of two columns, the last one with a zero
// where their number is odd.
void pack(const Matrix<float>& x, int64_t side, float* to);
void pack(const Matrix<bfloat16>& x, int64_t side, float* to);

// Whether that is faster than Eigen's: not for vectors and other thin matrices, which are read
// faster than copied.
bool suits_packed_product(int64_t rows, int64_t columns, int64_t terms);

// The floats of scratch memory that a product needs.
int64_t packed_product_memory();

// c [M, N] (+)= a [M, K] b [K, N]. An element is the sum of the sums of at most 128 terms each (of
// bfloat16 numbers 256), in order: it depends on nothing else, nor on other elements. For float,
// and for bfloat16, which pays where the processor multiplies pairs. REQUIRES: K > 0, c is not
// transposed and overlaps neither a nor b.
template <class T>
void packed_product(const Matrix<float>& c, const Matrix<T>& a, const Matrix<T>& b, bool accumulate,
                    float* memory);

}  // namespace ringgrad::cpu
