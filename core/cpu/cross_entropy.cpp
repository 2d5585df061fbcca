// Cross entropy of logits, and negative log likelihood of log-probabilities, on the CPU.
//
// The forward pass keeps two numbers for each row, the maximum and log Σ e^(x - max), instead of
// the probabilities. Backward computes p = e^(x - max - log sum) again, which costs less than
// writing and reading an array of probabilities. The loops over short rows process many rows at
// once, so that even rows of 10 classes fill vectors.
#include <limits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class A>
constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();

// Returns the classes' weights in the accumulation type, all 1 if they are undefined. A condition
// for each element would prevent vectorisation.
template <class A>
Tensor class_weights(const Tensor& weights, int64_t classes) {
  ASSERT(!weights.defined() || weights.is_contiguous());
  return weights.defined() ? in_dtype(weights, dtype_of<A>)
                           : full({classes}, 1, {.dtype = dtype_of<A>});
}

// The kind of a row's target: a class, one to ignore, or one that does not exist.
enum class Target { Class, Ignored, Outside };
Target kind_of(int64_t target, int64_t classes, int64_t ignore_index) {
  if (target == ignore_index) return Target::Ignored;
  return target >= 0 && target < classes ? Target::Class : Target::Outside;
}

// Calls body(row) for every row of x [N, C].
template <class Body>
void for_each_row(Stream stream, const Tensor& x, int64_t cost, Body&& body) {
  ASSERT(x.dim() == 2 && x.is_contiguous());
  parallel_for(stream, x.shape()[0], grain(cost * x.shape()[1]), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// Calls exponents(row, to) for each row of a block, then body(row, powers) with e to those
// exponents.
template <class A, class Exponents, class Body>
void with_powers(Stream stream, const Tensor& x, Exponents&& exponents, Body&& body) {
  ASSERT(x.dim() == 2 && x.is_contiguous());
  const int64_t classes = x.shape()[1];
  parallel_for(stream, x.shape()[0], grain(8 * classes), [&](int64_t begin, int64_t end) {
    const Workspace<A> block(stream, (end - begin) * classes);
    A* const power = block.data();
    for (int64_t row = begin; row < end; ++row) exponents(row, power + (row - begin) * classes);
    for (int64_t i = 0; i < (end - begin) * classes; ++i) power[i] = fast_exp(power[i]);
    for (int64_t row = begin; row < end; ++row) body(row, power + (row - begin) * classes);
  });
}

// statistics[0] = the maximum of a row, statistics[1] = log Σ e^(x - max). `power` has space for as
// many numbers as the row.
template <class T, class A>
void row_statistics(const T* row, int64_t classes, A* power, A* statistics) {
  const A largest = max_lanes<A>(classes, [row](auto c) { return at<A>(row, c); });
  for (int64_t c = 0; c < classes; ++c) power[c] = fast_exp(at<A>(row, c) - largest);
  statistics[0] = largest;
  statistics[1] = fast_log(sum_lanes<A>(classes, [power](auto c) { return at<A>(power, c); }));
}

// The same for at most kShortRows rows shorter than kCompareLanes. Each lane has a row.
constexpr int64_t kShortRows = 64;
template <class T, class A>
void short_row_statistics(const T* x, int64_t rows, int64_t classes, A* statistics) {
  A columns[kCompareLanes][kShortRows];
  A largest[kShortRows];
  A sum[kShortRows] = {};
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t r = 0; r < rows; ++r) columns[c][r] = at<A>(x, r * classes + c);
  std::copy_n(columns[0], rows, largest);
  for (int64_t c = 1; c < classes; ++c)
    for (int64_t r = 0; r < rows; ++r)
      largest[r] = columns[c][r] > largest[r] ? columns[c][r] : largest[r];
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t r = 0; r < rows; ++r) sum[r] += fast_exp(columns[c][r] - largest[r]);
  for (int64_t r = 0; r < rows; ++r) sum[r] = fast_log(sum[r]);
  for (int64_t r = 0; r < rows; ++r) {
    statistics[2 * r] = largest[r];
    statistics[2 * r + 1] = sum[r];
  }
}

template <class T, class A>
void all_row_statistics(Stream stream, const Tensor& x, A* statistics) {
  ASSERT(x.dim() == 2 && x.is_contiguous());
  const int64_t classes = x.shape()[1];
  const int64_t rows = classes < kCompareLanes ? kShortRows : 1;
  parallel_for(stream, ceil_div(x.shape()[0], rows), grain(4 * rows * classes),
               [&](int64_t begin, int64_t end) {
                 const Workspace<A> power(stream, classes);
                 for (int64_t row = begin * rows; row < std::min(end * rows, x.shape()[0]);
                      row += rows) {
                   const T* const from = x.data<T>() + row * classes;
                   if (classes < kCompareLanes)
                     short_row_statistics(from, std::min(rows, x.shape()[0] - row), classes,
                                          statistics + 2 * row);
                   else
                     row_statistics(from, classes, power.data(), statistics + 2 * row);
                 }
               });
}

void cross_entropy_cpu(Stream stream, const Tensor& loss, const Tensor& weight,
                       const Tensor& log_sum_exp, const Tensor& x, const Tensor& t,
                       const Tensor& class_weight, const kernels::CrossEntropyOptions& options) {
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const Tensor weights = class_weights<A>(class_weight, classes);
    const A* const u = weights.data<A>();
    const A smoothing = static_cast<A>(options.label_smoothing);
    const A share = smoothing / static_cast<A>(classes);
    all_row_statistics<T>(stream, x, log_sum_exp.data<A>());
    for_each_row(stream, x, 1, [&](int64_t n) {
      const T* const row = x.data<T>() + n * classes;
      const A largest = log_sum_exp.data<A>()[2 * n];
      const A log_sum = log_sum_exp.data<A>()[2 * n + 1];
      // Returns -log p[c].
      const auto surprise = [=](auto c) { return log_sum - (at<A>(row, c) - largest); };
      A& row_loss = loss.data<A>()[n];
      A& row_weight = weight.data<A>()[n];
      const int64_t target = t.data<int64_t>()[n];
      switch (kind_of(target, classes, options.ignore_index)) {
        case Target::Class:
          row_weight = u[target];
          row_loss = (1 - smoothing) * row_weight * surprise(target);
          if (smoothing != 0)
            row_loss +=
                share * sum_lanes<A>(classes, [=](auto c) { return at<A>(u, c) * surprise(c); });
          break;
        case Target::Ignored: row_loss = row_weight = 0; break;
        case Target::Outside: row_loss = row_weight = kNaN<A>;
      }
    });
  });
}

// With p = softmax(x): dx[c] = p[c] ((1 - s) u[t] + s/C Σ u) - s/C u[c], minus (1 - s) u[t] if c =
// t.
void cross_entropy_backward_cpu(Stream stream, const Tensor& dx, const Tensor& scale,
                                const Tensor& x, const Tensor& log_sum_exp, const Tensor& t,
                                const Tensor& class_weight,
                                const kernels::CrossEntropyOptions& options) {
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const Tensor weights = class_weights<A>(class_weight, classes);
    const A* const u = weights.data<A>();
    const A smoothing = static_cast<A>(options.label_smoothing);
    const A share = smoothing / static_cast<A>(classes);
    const A all = sum_lanes<A>(classes, [u](auto c) { return at<A>(u, c); });
    const auto exponents = [&](int64_t n, A* to) {
      const T* const row = x.data<T>() + n * classes;
      const A largest = log_sum_exp.data<A>()[2 * n];
      const A log_sum = log_sum_exp.data<A>()[2 * n + 1];
      for (int64_t c = 0; c < classes; ++c) to[c] = static_cast<A>(row[c]) - largest - log_sum;
    };
    with_powers<A>(stream, x, exponents, [&](int64_t n, const A* power) {
      T* const to = dx.data<T>() + n * classes;
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, options.ignore_index);
      if (kind != Target::Class) {
        std::fill_n(to, classes, static_cast<T>(kind == Target::Ignored ? A{0} : kNaN<A>));
        return;
      }
      const A s = scale.data<A>()[n];
      const A hit = (1 - smoothing) * u[target];
      const A factor = s * (hit + share * all);
      const A spread = s * share;
      for (int64_t c = 0; c < classes; ++c)
        to[c] = static_cast<T>(factor * power[c] - spread * u[c]);
      // With a single class all terms cancel. Each difference is then exactly 0, not a product's
      // rounding error.
      const A p = power[target];
      to[target] = static_cast<T>(s * (hit * (p - 1) + share * (all * p - u[target])));
    });
  });
}

void nll_loss_cpu(Stream stream, const Tensor& loss, const Tensor& weight, const Tensor& x,
                  const Tensor& t, const Tensor& class_weight, int64_t ignore_index) {
  visit_floating("nll_loss", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = x.shape()[1];
    const Tensor weights = class_weights<A>(class_weight, classes);
    const A* const u = weights.data<A>();
    for_each_row(stream, x, 1, [&](int64_t n) {
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, ignore_index);
      const A none = kind == Target::Ignored ? A{0} : kNaN<A>;
      weight.data<A>()[n] = kind == Target::Class ? u[target] : none;
      loss.data<A>()[n] = kind == Target::Class
                              ? -u[target] * static_cast<A>(x.data<T>()[n * classes + target])
                              : none;
    });
  });
}

void nll_loss_backward_cpu(Stream stream, const Tensor& dx, const Tensor& scale, const Tensor& t,
                           const Tensor& class_weight, int64_t ignore_index) {
  visit_floating("nll_loss", dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t classes = dx.shape()[1];
    const Tensor weights = class_weights<A>(class_weight, classes);
    const A* const u = weights.data<A>();
    for_each_row(stream, dx, 1, [&](int64_t n) {
      const int64_t target = t.data<int64_t>()[n];
      const Target kind = kind_of(target, classes, ignore_index);
      T* const to = dx.data<T>() + n * classes;
      std::fill_n(to, classes, static_cast<T>(kind == Target::Outside ? kNaN<A> : A{0}));
      if (kind == Target::Class) to[target] = static_cast<T>(-scale.data<A>()[n] * u[target]);
    });
  });
}

REGISTER_KERNEL(cross_entropy, CPU, Native, cross_entropy_cpu);
REGISTER_KERNEL(cross_entropy_backward, CPU, Native, cross_entropy_backward_cpu);
REGISTER_KERNEL(nll_loss, CPU, Native, nll_loss_cpu);
REGISTER_KERNEL(nll_loss_backward, CPU, Native, nll_loss_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
