// Layer normalisation of the rows of x [N, C].
//
// Mapping: one team of threads per row (common/reduce.cuh). dweight and dbias are sums over the
// rows: a block takes 32 neighbouring columns, the lanes of a warp are the columns, and the warps
// divide the rows.
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/row_scale.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"

namespace ringgrad::cuda {
namespace {

// Gives the position in weight and bias that serves column c of row n (see the contract). If each
// number serves a single column and there is only one group, it is c.
struct Parts {
  int64_t groups;
  int64_t count;
  int64_t width;

  // `parameters` are weights and biases of one size, or undefined. If all are undefined, one number
  // serves a whole row.
  Parts(int64_t columns, int64_t groups, std::initializer_list<Tensor> parameters)
      : groups(groups), count(1) {
    for (const Tensor& parameter : parameters)
      if (parameter.defined()) count = parameter.numel() / groups;
    width = columns / count;
    ASSERT(count * width == columns);
  }
  __device__ __forceinline__ int64_t place(int64_t n, int64_t c) const {
    return (groups == 1 ? 0 : n % groups * count) + (width == 1 ? c : c / width);
  }
};

template <class A>
struct RowStatistics {
  A mean;
  A rstd;
};

template <class Team, class T, class A = Compute<T>>
__device__ RowStatistics<A> statistics(const Team& team, const T* row, int64_t C, A eps, A scale) {
  const A share = A(1) / static_cast<A>(C);
  A total = 0;
  for (int64_t c = team.rank(); c < C; c += team.size()) total += widen(row[c]) * scale;
  const A mean = team.reduce(total, Sum{}, A(0)) * share;
  total = 0;
  for (int64_t c = team.rank(); c < C; c += team.size()) {
    const A deviation = widen(row[c]) * scale - mean;
    total += deviation * deviation;
  }
  const A variance = team.reduce(total, Sum{}, A(0)) * share;
  const A other = RowScale<A>::for_variance(variance + eps);  // the same for the whole team
  if (scale == 1 && other != 1) return statistics(team, row, C, eps, other);
  return {mean / scale, RowScale<A>::rstd(variance, eps, scale)};
}

// Computes xhat = (x - mean) rstd of numbers whose difference may leave the range of A.
template <class A>
struct Normalized {
  A scale;
  A mean;
  A rstd;
  __device__ explicit Normalized(const RowStatistics<A>& of)
      : scale(RowScale<A>::for_rstd(of.rstd)), mean(of.mean * scale), rstd(of.rstd / scale) {}
  __device__ __forceinline__ A operator()(A x) const { return (x * scale - mean) * rstd; }
};

template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(Team team, int64_t N, int64_t C, T* y, A* mean, A* rstd, const T* x,
                      const A* weight, const A* bias, Parts parts, A eps) {
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const T* row = x + n * C;
    const RowStatistics<A> of = statistics(team, row, C, eps, A(1));
    const Normalized<A> xhat(of);
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const int64_t place = parts.place(n, c);
      const A scale = weight ? weight[place] : A(1);
      const A shift = bias ? bias[place] : A(0);
      y[n * C + c] = narrow<T>(xhat(widen(row[c])) * scale + shift);
    }
    if (team.rank() == 0) {
      mean[n] = of.mean;
      rstd[n] = of.rstd;
    }
  }
}

// With g = weight dy:  dx = rstd (g - Σ g / C - xhat Σ (g xhat) / C).
template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_backward_kernel(Team team, int64_t N, int64_t C, T* dx, const T* dy, const T* x,
                               const A* mean, const A* rstd, const A* weight, Parts parts) {
  const A share = A(1) / static_cast<A>(C);
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const Normalized<A> xhat(RowStatistics<A>{mean[n], rstd[n]});
    A sum_g = 0;
    A sum_g_xhat = 0;
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A g = widen(dy[n * C + c]) * (weight ? weight[parts.place(n, c)] : A(1));
      sum_g += g;
      sum_g_xhat += g * xhat(widen(x[n * C + c]));
    }
    const A mean_g = team.reduce(sum_g, Sum{}, A(0)) * share;
    const A mean_g_xhat = team.reduce(sum_g_xhat, Sum{}, A(0)) * share;
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A g = widen(dy[n * C + c]) * (weight ? weight[parts.place(n, c)] : A(1));
      const A slope = rstd[n] * (g - mean_g - xhat(widen(x[n * C + c])) * mean_g_xhat);
      // A row of one number is normalised to 0, whatever the number is.
      dx[n * C + c] = narrow<T>(C == 1 ? 0 * slope : slope);
    }
  }
}

constexpr int kColumns = kWarp;
constexpr int kRowLanes = kThreads / kColumns;

// dweight[c] = Σ_n dy xhat,  dbias[c] = Σ_n dy.
template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_parameters_kernel(int64_t N, int64_t C, A* dweight, A* dbias, const T* dy,
                                 const T* x, const A* mean, const A* rstd) {
  __shared__ A weight_sums[kRowLanes][kColumns];
  __shared__ A bias_sums[kRowLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t c = int64_t{blockIdx.x} * kColumns + column;
  A sum_dy_xhat = 0;
  A sum_dy = 0;
  if (c < C)
    for (int64_t n = lane; n < N; n += kRowLanes) {
      const A g = widen(dy[n * C + c]);
      sum_dy += g;
      sum_dy_xhat += g * Normalized<A>(RowStatistics<A>{mean[n], rstd[n]})(widen(x[n * C + c]));
    }
  weight_sums[lane][column] = sum_dy_xhat;
  bias_sums[lane][column] = sum_dy;
  __syncthreads();
  if (lane != 0 || c >= C) return;
  for (int other = 1; other < kRowLanes; ++other) {
    sum_dy_xhat += weight_sums[other][column];
    sum_dy += bias_sums[other][column];
  }
  if (dweight) dweight[c] = sum_dy_xhat;
  if (dbias) dbias[c] = sum_dy;
}

// Does the same if several neighbouring columns share a number, and so do rows whose distance is a
// multiple of the number of groups. Each number has a block.
template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_parts_kernel(int64_t N, int64_t C, A* dweight, A* dbias, const T* dy, const T* x,
                            const A* mean, const A* rstd, Parts parts) {
  const int64_t group = blockIdx.x / parts.count;
  const int64_t part = blockIdx.x % parts.count;
  const int64_t terms = N / parts.groups * parts.width;
  A sum_dy_xhat = 0;
  A sum_dy = 0;
  for (int64_t term = threadIdx.x; term < terms; term += kThreads) {
    const int64_t n = term / parts.width * parts.groups + group;
    const int64_t c = part * parts.width + term % parts.width;
    const A g = widen(dy[n * C + c]);
    sum_dy += g;
    sum_dy_xhat += g * Normalized<A>(RowStatistics<A>{mean[n], rstd[n]})(widen(x[n * C + c]));
  }
  sum_dy_xhat = block_reduce(sum_dy_xhat, Sum{}, A(0));
  sum_dy = block_reduce(sum_dy, Sum{}, A(0));
  if (threadIdx.x != 0) return;
  if (dweight) dweight[blockIdx.x] = sum_dy_xhat;
  if (dbias) dbias[blockIdx.x] = sum_dy;
}

void layer_norm_cuda(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                     const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                     double eps) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && y.is_contiguous());
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  const Parts parts(C, groups, {weight, bias});
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    launch_rows(stream, N, C, layer_norm_kernel<WarpTeam, D>, layer_norm_kernel<BlockTeam, D>, N, C,
                device_data<T>(y), device_data<Accumulator<T>>(mean),
                device_data<Accumulator<T>>(rstd), device_data<T>(x),
                optional_data<Accumulator<T>>(weight), optional_data<Accumulator<T>>(bias), parts,
                static_cast<ComputeOf<T>>(eps));
  });
}

void layer_norm_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dweight,
                              const Tensor& dbias, const Tensor& dy, const Tensor& x,
                              const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                              int64_t groups) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && dy.is_contiguous() && dx.is_contiguous());
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  const Parts parts(C, groups, {weight, dweight, dbias});
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    const auto* m = device_data<Accumulator<T>>(mean);
    const auto* r = device_data<Accumulator<T>>(rstd);
    auto* const dw = optional_data<Accumulator<T>>(dweight);
    auto* const db = optional_data<Accumulator<T>>(dbias);
    launch_rows(stream, N, C, layer_norm_backward_kernel<WarpTeam, D>,
                layer_norm_backward_kernel<BlockTeam, D>, N, C, device_data<T>(dx),
                device_data<T>(dy), device_data<T>(x), m, r, optional_data<Accumulator<T>>(weight),
                parts);
    if (!dw && !db) return;
    if (parts.width == 1 && groups == 1)
      launch(layer_norm_parameters_kernel<D>, blocks_for(C, kColumns), kThreads, 0, stream, N, C,
             dw, db, device_data<T>(dy), device_data<T>(x), m, r);
    else
      launch(layer_norm_parts_kernel<D>, grid_of(parts.groups * parts.count), kThreads, 0, stream,
             N, C, dw, db, device_data<T>(dy), device_data<T>(x), m, r, parts);
  });
}

REGISTER_KERNEL(layer_norm, CUDA, Native, layer_norm_cuda);
REGISTER_KERNEL(layer_norm_backward, CUDA, Native, layer_norm_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
