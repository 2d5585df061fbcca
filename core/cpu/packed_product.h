// The matrix product of float32 or bfloat16 numbers on one thread, by the register tiles of the
// convolutions (conv/gemm.h). Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/conv/gemm.h"
#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

// to[column][row] = x, `side` places for each column, as a register tile reads a factor; zeros fill
// the places beyond the rows. For bfloat16 a place is a word of two columns. If the number of
// columns is odd, the last word has a zero.
void pack(const Matrix<float>& x, int64_t side, float* to);
void pack(const Matrix<bfloat16>& x, int64_t side, float* to);

// Copies b into strips of columns, one behind the other, as conv::packed_panel(to, steps, kPanel)
// describes them. `to` takes a word for each step and each column of whole panels.
template <class T>
void pack_right(const Matrix<T>& b, float* to);

// Returns the rows of `a` as a register tile reads a left factor, with up to three more than exist.
// It is `a` itself if that consists of words and those rows exist, and else a copy in `memory`,
// which takes a word for each of these rows and each step.
template <class T>
conv::LeftMatrix left_of(const Matrix<T>& a, float* memory);

// Returns true if this is faster than Eigen's product. It is not for vectors and other thin
// matrices, because copying them costs more than reading them.
bool suits_packed_product(int64_t rows, int64_t columns, int64_t terms);

// Returns the floats of scratch memory that a product needs.
int64_t packed_product_memory();

// c [M, N] (+)= a [M, K] b [K, N]. An element is the sum, in order, of partial sums of at most 128
// terms each (256 for bfloat16). It depends on nothing else, in particular not on other elements. T
// is float, or bfloat16, which pays if the processor multiplies pairs. REQUIRES: K > 0; c is not
// transposed and does not overlap a or b.
template <class T>
void packed_product(const Matrix<float>& c, const Matrix<T>& a, const Matrix<T>& b, bool accumulate,
                    float* memory);

}  // namespace ringgrad::cpu
