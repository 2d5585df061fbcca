// Attention in the manner of FlashAttention-2 (Dao 2023): the weights of a head are made tile by
// tile, and never leave shared memory.
//
// Mapping: a block has 32 queries (in dk and dv: 32 keys) of a head, and 64 columns of the result.
// It walks over tiles of 32 keys (queries). A warp has four rows of a tile, one lane for each key.
// Then it has four rows of the result, and a lane two columns of them. Blocks for other columns
// make the same weights. dq has a kernel of its own, so that no two blocks add to the same number,
// and sums do not depend on when blocks run.
#include "ringgrad/core/kernels/attention_kernels.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/random_elements.h"
#include "ringgrad/core/random.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

using kernels::AttentionRule;

constexpr int kSide = 32;   // of a tile
constexpr int kPitch = 33;  // puts a column into different banks
constexpr int kWarpRows = kSide * kWarp / kThreads;
constexpr int kColumns = 64;  // of a block's result
constexpr int kLaneColumns = kColumns / kWarp;

// x [B, H, rows, columns] with neighbouring columns.
template <class T>
struct Rows {
  T* data;
  int64_t heads;
  int64_t strides[3];
  int64_t rows;
  int64_t columns;

  __device__ __forceinline__ T* row(int64_t head, int64_t i) const {
    return data + head / heads * strides[0] + head % heads * strides[1] + i * strides[2];
  }
};
template <class T>
Rows<Element<T>> rows_of(const Tensor& x) {
  return {
      device_data<T>(x), x.size(1), {x.stride(0), x.stride(1), x.stride(2)}, x.size(2), x.size(3)};
}

enum class MaskKind { None, Bool, Float64, Float32, BFloat16, Float16 };

// The weights depend on these besides q and k.
template <class A>
struct Weighing {
  A scale;
  bool is_causal;
  MaskKind kind;
  const void* mask;
  int64_t heads;
  int64_t strides[4];
  int64_t queries;
  int64_t keys;
  const int64_t* state;
  uint64_t threshold;
  A kept;

  template <class M>
  __device__ __forceinline__ A mask_at(int64_t place) const {
    return static_cast<A>(widen(static_cast<const M*>(mask)[place]));
  }
  // Returns the score that the product of query i and key j makes.
  __device__ __forceinline__ A score(A product, int64_t head, int64_t i, int64_t j) const {
    if (i >= queries || j >= keys || (is_causal && j > i)) return -kInfinity<A>;
    const A score = scale * product;
    const int64_t place =
        head / heads * strides[0] + head % heads * strides[1] + i * strides[2] + j * strides[3];
    switch (kind) {
      case MaskKind::None: return score;
      case MaskKind::Bool: return static_cast<const bool*>(mask)[place] ? score : -kInfinity<A>;
      case MaskKind::Float64: return score + mask_at<double>(place);
      case MaskKind::Float32: return score + mask_at<float>(place);
      case MaskKind::BFloat16: return score + mask_at<__nv_bfloat16>(place);
      default: return score + mask_at<__half>(place);
    }
  }
  // Returns z of the contract.
  __device__ __forceinline__ A z(int64_t head, int64_t i, int64_t j) const {
    if (!state) return 1;
    const int64_t place = (head * queries + i) * keys + j;
    const PhiloxBlock block =
        philox(static_cast<uint64_t>(state[0]), static_cast<uint64_t>(state[1] + place / 4));
    return block.word[place % 4] >= threshold ? kept : A(0);
  }
  // Returns how many keys the queries before `end` use, and the first query that uses key j.
  __device__ __forceinline__ int64_t last_key(int64_t end) const {
    return is_causal ? min(end, keys) : keys;
  }
  __device__ __forceinline__ int64_t first_query(int64_t j) const { return is_causal ? j : 0; }
};

MaskKind kind_of(const Tensor& mask) {
  if (!mask.defined()) return MaskKind::None;
  switch (mask.dtype()) {
    case DType::Bool: return MaskKind::Bool;
    case DType::Float64: return MaskKind::Float64;
    case DType::Float32: return MaskKind::Float32;
    case DType::BFloat16: return MaskKind::BFloat16;
    case DType::Float16: return MaskKind::Float16;
    default: throw_unsupported_dtype("attention", mask.dtype(), "bool or a floating dtype");
  }
}

template <class A>
Weighing<A> weighing(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& state,
                     const AttentionRule& rule) {
  Weighing<A> by{};
  by.scale = static_cast<A>(rule.scale);
  by.is_causal = rule.is_causal;
  by.kind = kind_of(mask);
  by.heads = q.size(1);
  by.queries = q.size(2);
  by.keys = k.size(2);
  if (mask.defined()) {
    by.mask = mask.raw_data();
    for (int d = 0; d < 4; ++d) by.strides[d] = mask.stride(d);
  }
  if (state.defined()) {
    by.state = state.data<int64_t>();
    by.threshold = dropout_threshold(rule.dropout_p);
    by.kept = static_cast<A>(rule.dropout_p < 1 ? 1 / (1 - rule.dropout_p) : 0);
  }
  return by;
}

// ---- parts of a block's work --------------------------------------------------------------------

template <class A>
using Tile = A[kSide][kPitch];
// Two tiles of operands, or 32 rows of 64 columns.
template <class A>
using Operands = A[2 * kSide * kPitch];

// to[r][c] = from[first + r][column + c], or 0 outside.
template <class A, class T>
__device__ __forceinline__ void load(A* to, int pitch, int columns, const Rows<T>& from,
                                     int64_t head, int64_t first, int64_t column) {
  for (int n = static_cast<int>(threadIdx.x); n < kSide * columns; n += kThreads) {
    const int64_t row = first + n / columns;
    const int64_t at = column + n % columns;
    to[n / columns * pitch + n % columns] =
        row < from.rows && at < from.columns ? widen(from.row(head, row)[at]) : A(0);
  }
}

// product[r] = the product of this warp's row r of `left`, from i on, and this lane's row of
// `right`, from j on.
template <class A, class T>
__device__ __forceinline__ void multiply(A (&product)[kWarpRows], const Rows<T>& left, int64_t i,
                                         const Rows<T>& right, int64_t j, int64_t head,
                                         A* operands) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  A* const other = operands + kSide * kPitch;
  for (int r = 0; r < kWarpRows; ++r) product[r] = 0;
  for (int64_t column = 0; column < left.columns; column += kSide) {
    __syncthreads();  // all are done with the operands before
    load(operands, kPitch, kSide, left, head, i, column);
    load(other, kPitch, kSide, right, head, j, column);
    __syncthreads();
    for (int e = 0; e < kSide; ++e)
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r)
        product[r] += operands[(row + r) * kPitch + e] * other[lane * kPitch + e];
  }
}

// sum[r][c] += Σ weights[row r][n] operand[n][column c], or with kTurned weights[n][row r].
template <bool kTurned, class A>
__device__ __forceinline__ void add_products(A (&sum)[kWarpRows][kLaneColumns],
                                             const Tile<A>& weights, const A* operand) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  for (int n = 0; n < kSide; ++n)
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const A weight = kTurned ? weights[n][row + r] : weights[row + r][n];
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c)
        sum[r][c] += weight * operand[n * kColumns + c * kWarp + lane];
    }
}

// Writes factor · sum to the rows from `first` on.
template <class A, class T>
__device__ __forceinline__ void write(const Rows<T>& to, int64_t head, int64_t first,
                                      int64_t column, const A (&sum)[kWarpRows][kLaneColumns],
                                      const A (&factor)[kWarpRows]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  for (int r = 0; r < kWarpRows; ++r)
    for (int c = 0; c < kLaneColumns; ++c) {
      const int64_t at = column + c * kWarp + lane;
      if (first + row + r < to.rows && at < to.columns)
        to.row(head, first + row + r)[at] = narrow<T>(sum[r][c] * factor[r]);
    }
}

// A block's place: a tile of rows, columns, and a head.
struct Place {
  int64_t first;
  int64_t column;
  int64_t head;
  __device__ __forceinline__ Place(int64_t rows, int64_t columns) {
    const int64_t tiles = (rows + kSide - 1) / kSide;
    const int64_t parts = (columns + kColumns - 1) / kColumns;
    first = blockIdx.x % tiles * kSide;
    column = blockIdx.x / tiles % parts * kColumns;
    head = blockIdx.x / tiles / parts;
  }
};
unsigned blocks_of(int64_t heads, int64_t rows, int64_t columns) {
  return grid_of(heads * ((rows + kSide - 1) / kSide) * ((columns + kColumns - 1) / kColumns));
}

// ---- forward ------------------------------------------------------------------------------------

template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(Rows<T> y, A* logsumexp, Rows<T> q, Rows<T> k, Rows<T> v, Weighing<A> by) {
  __shared__ Operands<A> operands;
  __shared__ Tile<A> weights;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  // With no columns there is still the logsumexp.
  const Place place(y.rows, max(y.columns, int64_t{1}));
  A sum[kWarpRows][kLaneColumns] = {};
  A largest[kWarpRows];
  A total[kWarpRows];
  for (int r = 0; r < kWarpRows; ++r) {
    largest[r] = -kInfinity<A>;
    total[r] = 0;
  }
  const int64_t last = by.last_key(place.first + kSide);
  for (int64_t key = 0; key < last; key += kSide) {
    A p[kWarpRows];
    multiply(p, q, place.first, k, key, place.head, operands);
    __syncthreads();  // all are done with the operands, and with the weights before
    load(operands, kColumns, kColumns, v, place.head, key, place.column);
    for (int r = 0; r < kWarpRows; ++r) {
      const int64_t i = place.first + row + r;
      const A score = by.score(p[r], place.head, i, key + lane);
      const A before = largest[r];
      largest[r] = Max{}(before, warp_reduce(score, Max{}));
      // Otherwise -∞ - -∞ would be NaN.
      const A shift = largest[r] == -kInfinity<A> ? A(0) : largest[r];
      const A power = std::exp(score - shift);
      const A factor = std::exp(before - shift);
      total[r] = total[r] * factor + warp_reduce(power, Sum{});
      for (int c = 0; c < kLaneColumns; ++c) sum[r][c] *= factor;
      weights[row + r][lane] = power * by.z(place.head, i, key + lane);
    }
    __syncthreads();
    add_products<false>(sum, weights, operands);
  }
  A factor[kWarpRows];
  for (int r = 0; r < kWarpRows; ++r) factor[r] = total[r] == A(0) ? A(0) : 1 / total[r];
  write(y, place.head, place.first, place.column, sum, factor);
  for (int r = 0; r < kWarpRows; ++r) {
    const int64_t i = place.first + row + r;
    if (lane == 0 && place.column == 0 && i < by.queries)
      logsumexp[place.head * by.queries + i] =
          total[r] == A(0) ? kInfinity<A> : largest[r] + std::log(total[r]);
  }
}

// ---- backward -----------------------------------------------------------------------------------

// shared[head][i] = Σ dy y, by one warp for each query.
template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(A* shared, Rows<T> dy, Rows<T> y, int64_t rows) {
  const WarpTeam team;
  for (int64_t n = team.first_row(); n < rows; n += team.row_step()) {
    const T* const a = dy.row(n / y.rows, n % y.rows);
    const T* const b = y.row(n / y.rows, n % y.rows);
    A sum = 0;
    for (int64_t f = team.rank(); f < y.columns; f += team.size()) sum += widen(a[f]) * widen(b[f]);
    sum = team.reduce(sum, Sum{}, A(0));
    if (team.rank() == 0) shared[n] = sum;
  }
}

// The operands from which a tile of weights and their gradients is made.
template <class T, class A = Compute<T>>
struct Slopes {
  Rows<T> q;
  Rows<T> k;
  Rows<T> v;
  Rows<T> dy;
  const A* logsumexp;
  const A* shared;
  Weighing<A> by;

  // weights = p z and slopes = p (dp - shared) of 32 queries and 32 keys.
  __device__ __forceinline__ void operator()(Tile<A>& weights, Tile<A>& slopes, A* operands,
                                             int64_t head, int64_t query, int64_t key) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
    A product[kWarpRows];
    A dp[kWarpRows];
    multiply(product, q, query, k, key, head, operands);
    multiply(dp, dy, query, v, key, head, operands);
    __syncthreads();  // all are done with the operands, and with the tiles before
    for (int r = 0; r < kWarpRows; ++r) {
      const int64_t i = query + row + r;
      const int64_t n = head * by.queries + i;
      const A score = by.score(product[r], head, i, key + lane);
      const A p = i < by.queries ? std::exp(score - logsumexp[n]) : A(0);
      const A z = by.z(head, i, key + lane);
      weights[row + r][lane] = p * z;
      slopes[row + r][lane] = i < by.queries ? p * (dp[r] * z - shared[n]) : A(0);
    }
  }
};

template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads) query_gradient_kernel(Rows<T> dq, Slopes<T> of) {
  __shared__ Operands<A> operands;
  __shared__ Tile<A> weights;
  __shared__ Tile<A> slopes;
  const Place place(dq.rows, dq.columns);
  A sum[kWarpRows][kLaneColumns] = {};
  const int64_t last = of.by.last_key(place.first + kSide);
  for (int64_t key = 0; key < last; key += kSide) {
    of(weights, slopes, operands, place.head, place.first, key);
    load(operands, kColumns, kColumns, of.k, place.head, key, place.column);
    __syncthreads();
    add_products<false>(sum, slopes, operands);
  }
  A factor[kWarpRows];
  for (int r = 0; r < kWarpRows; ++r) factor[r] = of.by.scale;
  write(dq, place.head, place.first, place.column, sum, factor);
}

template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    key_gradients_kernel(Rows<T> dk, Rows<T> dv, Slopes<T> of) {
  __shared__ Operands<A> operands;
  __shared__ Tile<A> weights;
  __shared__ Tile<A> slopes;
  const Place place(dk.rows, max(dk.columns, dv.columns));
  A k_sum[kWarpRows][kLaneColumns] = {};
  A v_sum[kWarpRows][kLaneColumns] = {};
  const int64_t first = of.by.first_query(place.first) / kSide * kSide;
  for (int64_t query = first; query < of.by.queries; query += kSide) {
    of(weights, slopes, operands, place.head, query, place.first);
    load(operands, kColumns, kColumns, of.dy, place.head, query, place.column);
    __syncthreads();
    add_products<true>(v_sum, weights, operands);
    __syncthreads();
    load(operands, kColumns, kColumns, of.q, place.head, query, place.column);
    __syncthreads();
    add_products<true>(k_sum, slopes, operands);
  }
  A factor[kWarpRows];
  for (int r = 0; r < kWarpRows; ++r) factor[r] = of.by.scale;
  write(dk, place.head, place.first, place.column, k_sum, factor);
  for (int r = 0; r < kWarpRows; ++r) factor[r] = 1;
  write(dv, place.head, place.first, place.column, v_sum, factor);
}

// ---- launchers ----------------------------------------------------------------------------------

void attention_cuda(Stream stream, const Tensor& y, const Tensor& logsumexp, const Tensor& q,
                    const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& state,
                    const AttentionRule& rule) {
  ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && logsumexp.is_contiguous());
  visit_floating("attention", q.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    const int64_t columns = std::max<int64_t>(1, v.size(3));
    launch(attention_kernel<Element<T>>, blocks_of(q.size(0) * q.size(1), q.size(2), columns),
           kThreads, 0, stream, rows_of<T>(y), logsumexp.data<A>(), rows_of<T>(q), rows_of<T>(k),
           rows_of<T>(v), weighing<A>(q, k, mask, state, rule));
  });
}

void attention_backward_cuda(Stream stream, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                             const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& y, const Tensor& logsumexp, const Tensor& mask,
                             const Tensor& state, const AttentionRule& rule) {
  visit_floating("attention", q.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    using D = Element<T>;
    const int64_t heads = q.size(0) * q.size(1);
    const Tensor shared = empty_like(logsumexp);
    launch_elements(stream, logsumexp.numel() * kWarp, row_sums_kernel<D>, shared.data<A>(),
                    rows_of<T>(dy), rows_of<T>(y), logsumexp.numel());
    const Slopes<D> of = {rows_of<T>(q),
                          rows_of<T>(k),
                          rows_of<T>(v),
                          rows_of<T>(dy),
                          logsumexp.data<A>(),
                          shared.data<A>(),
                          weighing<A>(q, k, mask, state, rule)};
    launch(query_gradient_kernel<D>, blocks_of(heads, q.size(2), q.size(3)), kThreads, 0, stream,
           rows_of<T>(dq), of);
    launch(key_gradients_kernel<D>, blocks_of(heads, k.size(2), std::max(q.size(3), v.size(3))),
           kThreads, 0, stream, rows_of<T>(dk), rows_of<T>(dv), of);
  });
}

REGISTER_KERNEL(attention, CUDA, Native, attention_cuda);
REGISTER_KERNEL(attention_backward, CUDA, Native, attention_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
