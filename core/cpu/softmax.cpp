// Softmax and its logarithm along rows [N, C] on the CPU. The row's maximum is subtracted first, so
// that nothing overflows.
//
// Backward, with p = softmax(x): dp[i]/dx[j] = p[i] ([i = j] - p[j]). The first term is
// elementwise, and the second is the same for a whole row. So dx = p (dy - Σ dy p) needs one sum
// and no Jacobian. For the logarithm, dx = dy - p Σ dy.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Calls body(row, columns, scratch) for every row of x [N, C]. scratch has a row of the
// accumulation type, and two more rows for 16-bit numbers.
template <class T, class Body>
void for_each_row(Stream stream, const Tensor& x, Body&& body) {
  ASSERT(x.dim() == 2 && x.is_contiguous());
  const int64_t columns = x.shape()[1];
  parallel_for(stream, x.shape()[0], grain(4 * columns), [&](int64_t begin, int64_t end) {
    const Workspace<Accumulator<T>> scratch(stream, (kIs16Bit<T> ? 3 : 1) * columns);
    for (int64_t row = begin; row < end; ++row) body(row * columns, columns, scratch.data());
  });
}

// y = e^(x - largest) / sum, or its logarithm.
template <bool kLog>
void forward(Stream stream, const char* name, const Tensor& y, const Tensor& x) {
  visit_floating(name, x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for_each_row<T>(stream, x, [&](int64_t offset, int64_t n, A* power) {
      const A* const from = widened<A>(x.data<T>() + offset, n, power + n);
      A* const to = wide_results<A>(y.data<T>() + offset, power + 2 * n);
      const A largest = max_lanes<A>(n, [from](auto i) { return at<A>(from, i); });
      for (int64_t i = 0; i < n; ++i) power[i] = fast_exp(from[i] - largest);
      const A sum = sum_lanes<A>(n, [power](auto i) { return at<A>(power, i); });
      const A scale = 1 / sum;
      const A log_sum = std::log(sum);
      for (int64_t i = 0; i < n; ++i) to[i] = kLog ? from[i] - largest - log_sum : power[i] * scale;
      narrow_results(y.data<T>() + offset, to, n);
    });
  });
}

// Computes dx from y, the probabilities or their logarithms.
template <bool kLog>
void backward(Stream stream, const char* name, const Tensor& dx, const Tensor& dy,
              const Tensor& y) {
  visit_floating(name, y.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for_each_row<T>(stream, y, [&](int64_t offset, int64_t n, A* scratch) {
      const A* const g = widened<A>(dy.data<T>() + offset, n, scratch);
      const A* const p = widened<A>(y.data<T>() + offset, n, scratch + n);
      A* const to = wide_results<A>(dx.data<T>() + offset, scratch + 2 * n);
      const A sum = sum_lanes<A>(
          n, [g, p](auto i) { return kLog ? at<A>(g, i) : at<A>(g, i) * at<A>(p, i); });
      for (int64_t i = 0; i < n; ++i)
        to[i] = kLog ? g[i] - fast_exp(p[i]) * sum : p[i] * (g[i] - sum);
      narrow_results(dx.data<T>() + offset, to, n);
    });
  });
}

void softmax_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  forward<false>(stream, "softmax", y, x);
}
void log_softmax_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  forward<true>(stream, "log_softmax", y, x);
}
void softmax_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  backward<false>(stream, "softmax", dx, dy, y);
}
void log_softmax_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  backward<true>(stream, "log_softmax", dx, dy, y);
}

REGISTER_KERNEL(softmax, CPU, Native, softmax_cpu);
REGISTER_KERNEL(softmax_backward, CPU, Native, softmax_backward_cpu);
REGISTER_KERNEL(log_softmax, CPU, Native, log_softmax_cpu);
REGISTER_KERNEL(log_softmax_backward, CPU, Native, log_softmax_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
