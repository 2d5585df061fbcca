// Matrix products whose operands need not be matrices in memory: c [M, N] = a [M, K] · b [K, N] for
// each batch. A convolution is such a product, too (implicit GEMM). simt_gemm.cuh and
// tensor_core_gemm.cuh compute them.
//
// An Operand gives the positions of its elements. Both operands have the same form: a long
// dimension (M or N), and the summed dimension K.
//   size                          of the long dimension
//   Row  row(batch, i)            the part that depends on the long index, computed once per thread
//   Term term(k)                  the part that depends on the summed index
//   const T* address(row, term)   of the element; nullptr if it is zero.
//                                 REQUIRES: k < K; i may be anything
//
// A Store gives the positions of results: *at(batch, split, m, n) = result(batch, n, value) for m <
// M, n < N. The sum behind a value begins with *addend(batch, m, n) if the Store has an addend that
// is not nullptr, and otherwise with zero. Because the sum begins with it, the addend loads while
// the operands' first slices load. tensor_core_gemm.cuh requires that neighbours along N are
// neighbours in the Store, because a thread holds them in pairs.
#pragma once

#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

template <class Store>
concept Adds = requires(Store store) {
  store.addend(0, 0, 0);
};

// Returns the value with which the sum of (m, n) begins.
template <class C, class Store>
__device__ __forceinline__ C first_term(const Store& store, int64_t batch, int64_t m, int64_t n) {
  if constexpr (Adds<Store>)
    if (const auto* from = store.addend(batch, m, n)) return widen(*from);
  return 0;
}

struct GemmShape {
  int64_t batches;
  int64_t M;
  int64_t N;
  int64_t K;
  // K is cut into this many parts. Each gives a separate result, to be summed afterwards.
  int splits = 1;
};

// Returns the number of blocks: one for each rows × columns tile of each part of each batch.
// Consecutive blocks share rows of a.
inline unsigned gemm_blocks(const GemmShape& shape, int rows, int columns) {
  const int64_t tiles = (shape.M + rows - 1) / rows * ((shape.N + columns - 1) / columns);
  return grid_of(shape.batches * shape.splits * tiles);
}

// The work of this block: rows from m0, columns from n0, slices [first, last) of K.
struct GemmTile {
  int64_t batch;
  int64_t m0;
  int64_t n0;
  int split;
  int first_slice;
  int last_slice;

  __device__ __forceinline__ GemmTile(const GemmShape& shape, int rows, int columns, int slice) {
    const auto across = static_cast<unsigned>((shape.N + columns - 1) / columns);
    const auto down = static_cast<unsigned>((shape.M + rows - 1) / rows);
    unsigned rest = blockIdx.x;
    n0 = int64_t{rest % across} * columns;
    rest /= across;
    m0 = int64_t{rest % down} * rows;
    rest /= down;
    split = static_cast<int>(rest % static_cast<unsigned>(shape.splits));
    batch = rest / static_cast<unsigned>(shape.splits);
    const auto slices = static_cast<int>((shape.K + slice - 1) / slice);
    first_slice = static_cast<int>(int64_t{slices} * split / shape.splits);
    last_slice = static_cast<int>(int64_t{slices} * (split + 1) / shape.splits);
  }
};

// The common base of operands whose rows and terms are parts of an address, which only need to be
// added. A row beyond the operand is nullptr.
template <class T>
struct InMemory {
  using Value = T;
  using Row = const T*;
  using Term = int64_t;
  static __device__ __forceinline__ const T* address(Row row, Term term) {
    return row ? row + term : nullptr;
  }
};

// A matrix [B, long, K] in memory, with any strides.
template <class T>
struct MatrixOperand : InMemory<T> {
  const T* data;
  int64_t size;
  int64_t batch_stride;
  int64_t long_stride;
  int64_t k_stride;

  __device__ __forceinline__ const T* row(int64_t batch, int64_t i) const {
    return i < size ? data + batch * batch_stride + i * long_stride : nullptr;
  }
  __device__ __forceinline__ int64_t term(int64_t k) const { return k * k_stride; }
};
template <class T>
MatrixOperand<Element<T>> left_operand(const Tensor& a) {
  return {{}, device_data<T>(a), a.shape()[1], a.strides()[0], a.strides()[1], a.strides()[2]};
}
template <class T>
MatrixOperand<Element<T>> right_operand(const Tensor& b) {
  return {{}, device_data<T>(b), b.shape()[2], b.strides()[0], b.strides()[2], b.strides()[1]};
}

// Returns true if kSize neighbours can be loaded at once wherever a tile begins, at a multiple of
// kSize.
template <int kSize, class T>
bool loads_vectors(const MatrixOperand<T>& x) {
  const int64_t other = x.k_stride == 1 ? x.long_stride : x.k_stride;
  return (x.k_stride == 1 || x.long_stride == 1) && other % kSize == 0 &&
         x.batch_stride % kSize == 0 && is_vector_aligned<kSize>(x.data);
}

// Writes c [B, M, N], contiguous, plus bias [N] unless that is nullptr.
template <class T>
struct MatrixStore {
  T* c;
  int64_t M;
  int64_t N;
  const T* bias;

  __device__ __forceinline__ T* at(int64_t batch, int, int64_t m, int64_t n) const {
    return c + (batch * M + m) * N + n;
  }
  __device__ __forceinline__ T result(int64_t, int64_t n, Compute<T> value) const {
    return narrow<T>(bias ? value + widen(bias[n]) : value);
  }
};

}  // namespace ringgrad::cuda
