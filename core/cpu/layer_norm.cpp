// Layer normalisation of rows [N, C] on the CPU: y = weight xhat + bias, xhat = (x - mean) rstd.
//
// The variance is taken in a second pass, from deviations: E[x²] - E[x]² would cancel where the mean is large beside
// the deviations. A row stays in the first-level cache, so that the passes over it cost no memory traffic.
//
// Backward. mean and rstd depend on every x of the row, so each dx gets, beside its own g = weight dy, what its change
// does to all others through them: the derivative of xhat is rstd times the projection that takes out of g its mean and
// its part along xhat. Hence dx = rstd (g - mean(g) - xhat mean(g xhat)).
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// weight (bias); `otherwise` everywhere where it is undefined.
template <class A>
Tensor parameter(const Tensor& x, int64_t columns, double otherwise) {
  ASSERT(!x.defined() || (x.is_contiguous() && x.numel() == columns));
  return x.defined() ? x : full({columns}, otherwise, {.dtype = dtype_of<A>});
}

void layer_norm_cpu(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, double eps) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && y.is_contiguous());
  const int64_t columns = x.shape()[1];
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Tensor scale = parameter<A>(weight, columns, 1), shift = parameter<A>(bias, columns, 0);
    const A* const a = scale.data<A>();
    const A* const b = shift.data<A>();
    parallel_for(stream, x.shape()[0], grain(columns), [&](int64_t begin, int64_t end) {
      const Workspace<A> scratch(stream, kIs16Bit<T> ? 2 * columns : 0);
      for (int64_t n = begin; n < end; ++n) {
        const A* const row = widened<A>(x.data<T>() + n * columns, columns, scratch.data());
        A* const to = wide_results<A>(y.data<T>() + n * columns, scratch.data() + columns);
        // In double: an error of the mean counts 1 / sqrt(eps) times where all numbers of a row are alike.
        const auto m = static_cast<A>(sum_lanes<double>(columns, [row](auto c) { return at<double>(row, c); }) /
                                      static_cast<double>(columns));
        const A var = sum_lanes<A>(columns,
                                   [row, m](auto c) {
                                     const auto deviation = at<A>(row, c) - m;
                                     return deviation * deviation;
                                   }) /
                      columns;
        const A r = 1 / std::sqrt(var + static_cast<A>(eps));
        for (int64_t c = 0; c < columns; ++c) to[c] = (row[c] - m) * r * a[c] + b[c];
        narrow_results(y.data<T>() + n * columns, to, columns);
        mean.data<A>()[n] = m;
        rstd.data<A>()[n] = r;
      }
    });
  });
}

// to[c] = Σ over the partial sums [count, columns], in double and in their order.
template <class A>
void add_partials(const Tensor& to, const A* partial, int64_t count, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += partial[i * columns + c];
    to.data<A>()[c] = static_cast<A>(total);
  }
}

// dweight and dbias are sums over the rows. Each unit of rows has sums of its own, which are added at the end in the
// order of the units; a unit's size depends on C alone, so no sum depends on the number of threads.
void layer_norm_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                             const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                             const Tensor& weight) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && dy.is_contiguous() && dx.is_contiguous());
  const int64_t rows = x.shape()[0], columns = x.shape()[1], unit_rows = std::min(grain(columns) * 2, kMaxTerms);
  const int64_t units = ceil_div(rows, unit_rows);
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Tensor scale = parameter<A>(weight, columns, 1);
    const A* const a = scale.data<A>();
    const Workspace<A> weight_sums(stream, units * columns), bias_sums(stream, units * columns);
    parallel_for(stream, rows, unit_rows, [&](int64_t begin, int64_t end) {
      A* const dw = weight_sums.data() + begin / unit_rows * columns;
      A* const db = bias_sums.data() + begin / unit_rows * columns;
      std::fill_n(dw, columns, A{0});
      std::fill_n(db, columns, A{0});
      const Workspace<A> scratch(stream, kIs16Bit<T> ? 3 * columns : 0);
      for (int64_t n = begin; n < end; ++n) {
        const A* const from = widened<A>(x.data<T>() + n * columns, columns, scratch.data());
        const A* const grad = widened<A>(dy.data<T>() + n * columns, columns, scratch.data() + columns);
        A* const to = wide_results<A>(dx.data<T>() + n * columns, scratch.data() + 2 * columns);
        const A m = mean.data<A>()[n], r = rstd.data<A>()[n];
        const auto xhat = [=](auto c) { return (at<A>(from, c) - m) * r; };
        const auto g = [=](auto c) { return at<A>(grad, c) * at<A>(a, c); };
        const A mean_g = sum_lanes<A>(columns, g) / columns;
        const A mean_g_xhat = sum_lanes<A>(columns, [=](auto c) { return g(c) * xhat(c); }) / columns;
        for (int64_t c = 0; c < columns; ++c) {
          dw[c] += grad[c] * xhat(c);
          db[c] += grad[c];
        }
        for (int64_t c = 0; c < columns; ++c) to[c] = r * (g(c) - mean_g - xhat(c) * mean_g_xhat);
        narrow_results(dx.data<T>() + n * columns, to, columns);
      }
    });
    if (dweight.defined()) add_partials(dweight, weight_sums.data(), units, columns);
    if (dbias.defined()) add_partials(dbias, bias_sums.data(), units, columns);
  });
}

REGISTER_KERNEL(layer_norm, DeviceType::CPU, Provider::Native, layer_norm_cpu);
REGISTER_KERNEL(layer_norm_backward, DeviceType::CPU, Provider::Native, layer_norm_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
