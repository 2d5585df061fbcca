// softmax and log_softmax over the rows of x [N, C].
//
// Mapping: one team of threads per row (common/reduce.cuh), whose members stride over the columns.
// There are three passes over the row: its maximum, the sum of e^(x - max), the result. After the
// first pass the row is in the cache.
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"

namespace ringgrad::cuda {
namespace {

template <class Team, class T, bool kLog>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(Team team, int64_t N, int64_t C, T* y, const T* x) {
  using A = Compute<T>;
  constexpr A kLowest = -kInfinity<A>;
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const T* row = x + n * C;
    A highest = kLowest;
    for (int64_t c = team.rank(); c < C; c += team.size()) highest = Max{}(highest, widen(row[c]));
    highest = team.reduce(highest, Max{}, kLowest);
    A total = 0;
    for (int64_t c = team.rank(); c < C; c += team.size())
      total += std::exp(widen(row[c]) - highest);
    total = team.reduce(total, Sum{}, A(0));
    const A log_total = std::log(total);
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A shifted = widen(row[c]) - highest;
      y[n * C + c] = narrow<T>(kLog ? shifted - log_total : std::exp(shifted) / total);
    }
  }
}

// softmax: dx = y (dy - Σ dy y);  log_softmax: dx = dy - e^y Σ dy.
template <class Team, class T, bool kLog>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(Team team, int64_t N, int64_t C, T* dx, const T* dy, const T* y) {
  using A = Compute<T>;
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    A total = 0;
    for (int64_t i = n * C + team.rank(); i < (n + 1) * C; i += team.size())
      total += kLog ? widen(dy[i]) : widen(dy[i]) * widen(y[i]);
    total = team.reduce(total, Sum{}, A(0));
    for (int64_t i = n * C + team.rank(); i < (n + 1) * C; i += team.size()) {
      const A g = widen(dy[i]);
      const A v = widen(y[i]);
      dx[i] = narrow<T>(kLog ? g - std::exp(v) * total : v * (g - total));
    }
  }
}

template <bool kLog>
void forward(const char* name, Stream stream, const Tensor& y, const Tensor& x) {
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  visit_floating(name, x.dtype(), [&]<class T>() {
    using D = Element<T>;
    launch_rows(stream, N, C, softmax_kernel<WarpTeam, D, kLog>, softmax_kernel<BlockTeam, D, kLog>,
                N, C, device_data<T>(y), device_data<T>(x));
  });
}
template <bool kLog>
void backward(const char* name, Stream stream, const Tensor& dx, const Tensor& dy,
              const Tensor& y) {
  const int64_t N = dx.shape()[0];
  const int64_t C = dx.shape()[1];
  visit_floating(name, dx.dtype(), [&]<class T>() {
    using D = Element<T>;
    launch_rows(stream, N, C, softmax_backward_kernel<WarpTeam, D, kLog>,
                softmax_backward_kernel<BlockTeam, D, kLog>, N, C, device_data<T>(dx),
                device_data<T>(dy), device_data<T>(y));
  });
}

void softmax_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  forward<false>("softmax", stream, y, x);
}
void log_softmax_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  forward<true>("log_softmax", stream, y, x);
}
void softmax_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  backward<false>("softmax", stream, dx, dy, y);
}
void log_softmax_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  backward<true>("log_softmax", stream, dx, dy, y);
}

REGISTER_KERNEL(softmax, CUDA, Native, softmax_cuda);
REGISTER_KERNEL(log_softmax, CUDA, Native, log_softmax_cuda);
REGISTER_KERNEL(softmax_backward, CUDA, Native, softmax_backward_cuda);
REGISTER_KERNEL(log_softmax_backward, CUDA, Native, log_softmax_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
