// Matrix products whose operands need not lie in memory as matrices: c [M, N] = a [M, K] · b [K, N]
// for each batch, where a convolution, too, is such a product (implicit GEMM). simt_gemm.cuh and
// tensor_core_gemm.cuh compute them.
//
// An Operand says where its elements are. Both are seen alike: a long dimension (M or N), and the K
// summed over.
//   size                          of the long dimension
//   Row  row(batch, i)            what the long index says, worked out once per thread
//   Term term(k)                  what the summed index says
//   const T* address(row, term)   of the element; nullptr where it is zero.
//                                 REQUIRES: k < K, but i may be anything
//
// A Store says where results go: *at(batch, split, m, n) = result(batch, n, value) for m < M, n <
// N. The sum behind a value begins with *addend(batch, m, n), where the Store has that and it is
// not nullptr, else with zero: begun so, and not added at the end, it arrives while the operands'
// first slices are on their way, too. For tensor_core_gemm.cuh neighbours along N have to be
// neighbours there, because a thread holds them in pairs.
#pragma once

#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

template <class Store>
concept Adds = requires(Store store) {
  store.addend(0, 0, 0);
};

// What the sum of (m, n) begins with.
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
  // K is cut into as many parts; each gives a result of its own, to be added up afterwards.
  int splits = 1;
};

// One block for each rows × columns tile of each part of each batch; blocks that follow each other
// share rows of a.
inline unsigned gemm_blocks(const GemmShape& shape, int rows, int columns) {
  const int64_t tiles = (shape.M + rows - 1) / rows * ((shape.N + columns - 1) / columns);
  return grid_of(shape.batches * shape.splits * tiles);
}

// What this block computes: rows from m0, columns from n0, slices [first, last) of K.
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

// What operands share whose rows and terms are parts of an address, which only need to be added. A
// row beyond the operand is nullptr.
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

// Whether kSize neighbours can be loaded at once wherever a tile begins, at a multiple of kSize.
template <int kSize, class T>
bool loads_vectors(const MatrixOperand<T>& x) {
  const int64_t other = x.k_stride == 1 ? x.long_stride : x.k_stride;
  return (x.k_stride == 1 || x.long_stride == 1) && other % kSize == 0 &&
         x.batch_stride % kSize == 0 && is_vector_aligned<kSize>(x.data);
}

// c [B, M, N] contiguous, plus bias [N] unless that is nullptr.
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
