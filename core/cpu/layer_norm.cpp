// Layer normalisation of rows [N, C] on the CPU: y = weight xhat + bias, xhat = (x - mean) rstd.
//
// The variance is computed in a second pass, from deviations: E[x²] - E[x]² would cancel if the
// mean is large against the deviations. A row stays in the first-level cache, so its passes cost no
// memory traffic.
//
// Backward: mean and rstd depend on every x of the row. So each dx consists of its own g = weight
// dy and of its effect on all others through mean and rstd. The derivative of xhat is rstd times
// the projection that removes from g its mean and its part along xhat. Hence dx = rstd (g - mean(g)
// - xhat mean(g xhat)).
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/row_scale.h"

namespace ringgrad::cpu {
namespace {

// Maps a row to its numbers of weight and bias. Each number serves some neighbouring columns.
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
  int64_t numel() const { return groups * count; }
  int64_t of_row(int64_t n) const { return n % groups * count; }
};

// Returns weight (or bias), or `otherwise` everywhere if it is undefined.
template <class A>
Tensor parameter(const Tensor& x, const Parts& parts, double otherwise) {
  ASSERT(!x.defined() || (x.is_contiguous() && x.numel() == parts.numel()));
  return x.defined() ? x : full({parts.numel()}, otherwise, {.dtype = dtype_of<A>});
}

template <class A>
struct RowStatistics {
  A mean;
  A rstd;
};

// The mean is computed in double: if all numbers of a row are alike, an error in it is multiplied
// by 1 / sqrt(eps). The row is multiplied by `scale` first, which few rows need.
template <bool kScaled, class A>
RowStatistics<A> statistics(const A* row, int64_t columns, A eps, A scale) {
  const auto scaled = [scale](auto x) {
    if constexpr (kScaled)
      return x * scale;
    else
      return x;
  };
  const double total =
      sum_lanes<double>(columns, [row, scaled](auto c) { return scaled(at<double>(row, c)); });
  const auto mean = static_cast<A>(total / static_cast<double>(columns));
  const A variance = sum_lanes<A>(columns,
                                  [row, mean, scaled](auto c) {
                                    const auto deviation = scaled(at<A>(row, c)) - mean;
                                    return deviation * deviation;
                                  }) /
                     columns;
  const A needed = RowScale<A>::for_variance(variance + eps);
  if (!kScaled && needed != 1) return statistics<true>(row, columns, eps, needed);
  return {mean / scale, RowScale<A>::rstd(variance, eps, scale)};
}

// Computes xhat = (x - mean) rstd of one number or of several, whose difference may leave the range
// of A.
template <class A>
struct Normalized {
  A scale;
  A mean;
  A rstd;
  explicit Normalized(const RowStatistics<A>& of)
      : scale(RowScale<A>::for_rstd(of.rstd)), mean(of.mean * scale), rstd(of.rstd / scale) {}
  auto operator()(auto x) const { return (x * scale - mean) * rstd; }
};

void layer_norm_cpu(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                    const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                    double eps) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && y.is_contiguous());
  const int64_t columns = x.shape()[1];
  const Parts parts(columns, groups, {weight, bias});
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Tensor scale = parameter<A>(weight, parts, 1);
    const Tensor shift = parameter<A>(bias, parts, 0);
    parallel_for(stream, x.shape()[0], grain(columns), [&](int64_t begin, int64_t end) {
      const Workspace<A> scratch(stream, kIs16Bit<T> ? 2 * columns : 0);
      for (int64_t n = begin; n < end; ++n) {
        const A* const row = widened<A>(x.data<T>() + n * columns, columns, scratch.data());
        A* const to = wide_results<A>(y.data<T>() + n * columns, scratch.data() + columns);
        const A* const a = scale.data<A>() + parts.of_row(n);
        const A* const b = shift.data<A>() + parts.of_row(n);
        const RowStatistics<A> of = statistics<false>(row, columns, static_cast<A>(eps), A(1));
        const Normalized<A> xhat(of);
        if (parts.width == 1)
          for (int64_t c = 0; c < columns; ++c) to[c] = xhat(row[c]) * a[c] + b[c];
        else
          for (int64_t j = 0; j < parts.count; ++j)
            for (int64_t c = j * parts.width; c < (j + 1) * parts.width; ++c)
              to[c] = xhat(row[c]) * a[j] + b[j];
        narrow_results(y.data<T>() + n * columns, to, columns);
        mean.data<A>()[n] = of.mean;
        rstd.data<A>()[n] = of.rstd;
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

// The inputs and outputs of one row's gradient. It is written to dx and added to the sums of
// dweight and dbias.
template <class A>
struct GradientRow {
  Normalized<A> xhat;
  A rstd;
  const A* a;
  const A* grad;
  const A* x;
  A* dx;
  A* dw;
  A* db;
};

// Computes the gradient of a row in which each column has its own weight.
template <class A>
void row_gradient(int64_t columns, const GradientRow<A>& row) {
  const auto [xhat, rstd, a, grad, x, dx, dw, db] = row;
  const auto g = [=](auto c) { return at<A>(grad, c) * at<A>(a, c); };
  const A mean_g = sum_lanes<A>(columns, g) / columns;
  const A mean_g_xhat =
      sum_lanes<A>(columns, [=](auto c) { return g(c) * xhat(at<A>(x, c)); }) / columns;
  for (int64_t c = 0; c < columns; ++c) {
    dw[c] += grad[c] * xhat(x[c]);
    db[c] += grad[c];
  }
  for (int64_t c = 0; c < columns; ++c) dx[c] = rstd * (g(c) - mean_g - xhat(x[c]) * mean_g_xhat);
}

// Computes the gradient of a row in which neighbouring columns share a weight. The sums of each
// part serve dx, dweight and dbias.
template <class A>
void row_gradient_in_parts(const Parts& parts, const GradientRow<A>& row) {
  const auto [xhat, rstd, a, grad, x, dx, dw, db] = row;
  double sum_g = 0;
  double sum_g_xhat = 0;
  for (int64_t j = 0; j < parts.count; ++j) {
    const A* const dy = grad + j * parts.width;
    const A* const from = x + j * parts.width;
    const A sum = sum_lanes<A>(parts.width, [=](auto c) { return at<A>(dy, c); });
    const A sum_xhat =
        sum_lanes<A>(parts.width, [=](auto c) { return at<A>(dy, c) * xhat(at<A>(from, c)); });
    dw[j] += sum_xhat;
    db[j] += sum;
    sum_g += static_cast<double>(a[j]) * sum;
    sum_g_xhat += static_cast<double>(a[j]) * sum_xhat;
  }
  const auto columns = static_cast<double>(parts.count * parts.width);
  const A mean_g = static_cast<A>(sum_g / columns);
  const A mean_g_xhat = static_cast<A>(sum_g_xhat / columns);
  for (int64_t j = 0; j < parts.count; ++j)
    for (int64_t c = j * parts.width; c < (j + 1) * parts.width; ++c)
      dx[c] = rstd * (grad[c] * a[j] - mean_g - xhat(x[c]) * mean_g_xhat);
}

// dweight and dbias are sums over the rows. Each unit of rows has its own sums, which are added at
// the end in the order of the units. The size of a unit depends on the shape alone, so no sum
// depends on the number of threads.
void layer_norm_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dweight,
                             const Tensor& dbias, const Tensor& dy, const Tensor& x,
                             const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                             int64_t groups) {
  ASSERT(x.dim() == 2 && x.is_contiguous() && dy.is_contiguous() && dx.is_contiguous());
  const int64_t rows = x.shape()[0];
  const int64_t columns = x.shape()[1];
  const int64_t unit_rows = std::min(grain(columns) * 2, kMaxTerms);
  const int64_t units = ceil_div(rows, unit_rows);
  const Parts parts(columns, groups, {weight, dweight, dbias});
  visit_floating("layer_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Tensor scale = parameter<A>(weight, parts, 1);
    const Workspace<A> weight_sums(stream, units * parts.numel());
    const Workspace<A> bias_sums(stream, units * parts.numel());
    parallel_for(stream, rows, unit_rows, [&](int64_t begin, int64_t end) {
      const int64_t first = begin / unit_rows * parts.numel();
      std::fill_n(weight_sums.data() + first, parts.numel(), A{0});
      std::fill_n(bias_sums.data() + first, parts.numel(), A{0});
      const Workspace<A> scratch(stream, kIs16Bit<T> ? 3 * columns : 0);
      for (int64_t n = begin; n < end; ++n) {
        const A* const from = widened<A>(x.data<T>() + n * columns, columns, scratch.data());
        const A* const grad =
            widened<A>(dy.data<T>() + n * columns, columns, scratch.data() + columns);
        A* const to = wide_results<A>(dx.data<T>() + n * columns, scratch.data() + 2 * columns);
        const A r = rstd.data<A>()[n];
        const GradientRow<A> row = {Normalized<A>({mean.data<A>()[n], r}),
                                    r,
                                    scale.data<A>() + parts.of_row(n),
                                    grad,
                                    from,
                                    to,
                                    weight_sums.data() + first + parts.of_row(n),
                                    bias_sums.data() + first + parts.of_row(n)};
        if (parts.width == 1)
          row_gradient(columns, row);
        else
          row_gradient_in_parts(parts, row);
        // A row of one number is normalised to 0, whatever the number is.
        if (columns == 1) to[0] *= 0;
        narrow_results(dx.data<T>() + n * columns, to, columns);
      }
    });
    if (dweight.defined()) add_partials(dweight, weight_sums.data(), units, parts.numel());
    if (dbias.defined()) add_partials(dbias, bias_sums.data(), units, parts.numel());
  });
}

REGISTER_KERNEL(layer_norm, CPU, Native, layer_norm_cpu);
REGISTER_KERNEL(layer_norm_backward, CPU, Native, layer_norm_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
