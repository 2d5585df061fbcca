// Layer normalisation of the rows of x [N, C].
//
// Mapping: one team of threads per row (common/reduce.cuh). dweight and dbias are sums over the rows: a block takes 32
// neighbouring columns, a warp's lanes are the columns, and the warps share the rows.
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"

namespace ringgrad::cuda {
namespace {

template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(Team team, int64_t N, int64_t C, T* y, A* mean, A* rstd,
                                                              const T* x, const A* weight, const A* bias, A eps) {
  const A share = A(1) / static_cast<A>(C);
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const T* row = x + n * C;
    A total = 0;
    for (int64_t c = team.rank(); c < C; c += team.size()) total += widen(row[c]);
    const A m = team.reduce(total, Sum{}, A(0)) * share;
    total = 0;
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A deviation = widen(row[c]) - m;
      total += deviation * deviation;
    }
    const A r = 1 / std::sqrt(team.reduce(total, Sum{}, A(0)) * share + eps);
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A scale = weight ? weight[c] : A(1), shift = bias ? bias[c] : A(0);
      y[n * C + c] = narrow<T>((widen(row[c]) - m) * r * scale + shift);
    }
    if (team.rank() == 0) {
      mean[n] = m;
      rstd[n] = r;
    }
  }
}

// With g = weight dy:  dx = rstd (g - Σ g / C - xhat Σ (g xhat) / C).
template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_backward_kernel(Team team, int64_t N, int64_t C, T* dx, const T* dy, const T* x, const A* mean,
                               const A* rstd, const A* weight) {
  const A share = A(1) / static_cast<A>(C);
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const A m = mean[n], r = rstd[n];
    A sum_g = 0, sum_g_xhat = 0;
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A g = widen(dy[n * C + c]) * (weight ? weight[c] : A(1));
      sum_g += g;
      sum_g_xhat += g * (widen(x[n * C + c]) - m) * r;
    }
    const A mean_g = team.reduce(sum_g, Sum{}, A(0)) * share;
    const A mean_g_xhat = team.reduce(sum_g_xhat, Sum{}, A(0)) * share;
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A g = widen(dy[n * C + c]) * (weight ? weight[c] : A(1));
      const A xhat = (widen(x[n * C + c]) - m) * r;
      dx[n * C + c] = narrow<T>(r * (g - mean_g - xhat * mean_g_xhat));
    }
  }
}

constexpr int kColumns = kWarp, kRowLanes = kThreads / kColumns;

// dweight[c] = Σ_n dy xhat,  dbias[c] = Σ_n dy.
template <class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    layer_norm_parameters_kernel(int64_t N, int64_t C, A* dweight, A* dbias, const T* dy, const T* x, const A* mean,
                                 const A* rstd) {
  __shared__ A weight_sums[kRowLanes][kColumns], bias_sums[kRowLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns, lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t c = int64_t{blockIdx.x} * kColumns + column;
  A sum_dy_xhat = 0, sum_dy = 0;
  if (c < C)
    for (int64_t n = lane; n < N; n += kRowLanes) {
      const A g = widen(dy[n * C + c]);
      sum_dy += g;
      sum_dy_xhat += g * (widen(x[n * C + c]) - mean[n]) * rstd[n];
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

void layer_norm_cuda(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                     const Tensor& weight, const Tensor& bias, double eps) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && y.is_contiguous());
  const int64_t N = x.shape()[0], C = x.shape()[1];
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    launch_rows(stream, N, C, layer_norm_kernel<WarpTeam, D>, layer_norm_kernel<BlockTeam, D>, N, C, device_data<T>(y),
                device_data<Accumulator<T>>(mean), device_data<Accumulator<T>>(rstd), device_data<T>(x),
                optional_data<Accumulator<T>>(weight), optional_data<Accumulator<T>>(bias),
                static_cast<ComputeOf<T>>(eps));
  });
}

void layer_norm_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                              const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                              const Tensor& weight) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && dy.is_contiguous() && dx.is_contiguous());
  const int64_t N = x.shape()[0], C = x.shape()[1];
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    const auto* m = device_data<Accumulator<T>>(mean);
    const auto* r = device_data<Accumulator<T>>(rstd);
    launch_rows(stream, N, C, layer_norm_backward_kernel<WarpTeam, D>, layer_norm_backward_kernel<BlockTeam, D>, N, C,
                device_data<T>(dx), device_data<T>(dy), device_data<T>(x), m, r, optional_data<Accumulator<T>>(weight));
    if (dweight.defined() || dbias.defined())
      launch(layer_norm_parameters_kernel<D>, blocks_for(C, kColumns), kThreads, 0, stream, N, C,
             optional_data<Accumulator<T>>(dweight), optional_data<Accumulator<T>>(dbias), device_data<T>(dy),
             device_data<T>(x), m, r);
  });
}

REGISTER_KERNEL(layer_norm, DeviceType::CUDA, Provider::Native, layer_norm_cuda);
REGISTER_KERNEL(layer_norm_backward, DeviceType::CUDA, Provider::Native, layer_norm_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
