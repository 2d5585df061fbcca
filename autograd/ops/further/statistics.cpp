// Reductions other than sums and extremes: variance, standard deviation, norms, log Σ e^x.
#include "ringgrad/autograd/ops.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/autograd/ops/further/reduced.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// Returns the largest element over the reduced dimensions, which `kept` has with size 1. REQUIRES:
// x has no history.
Tensor largest_of(const Tensor& x, const Shape& kept) {
  Tensor largest = x;
  for (int d = 0; d < x.dim(); ++d)
    if (kept[d] != x.shape()[d]) largest = max(largest, d, true).values;
  return largest;
}

// Returns the numbers by which float64 magnitudes are divided before powers of them are added: the
// largest ones over the reduced dimensions. So the powers neither overflow nor vanish together.
Tensor unit_of(const Tensor& magnitude, const Shape& kept) {
  const Tensor most =
      magnitude.numel() > 0 ? largest_of(magnitude, kept) : zeros(kept, magnitude.options());
  return masked_fill(most, (most == 0) | (most == INFINITY), 1);
}

// Returns the power of two by which x is multiplied before it is squared. Squares of float64
// numbers can leave the range, so the factor differs from 1 where the largest magnitude over the
// reduced dimensions is far from 1. The other dtypes are squared in float64, where they neither
// overflow nor vanish: for them the result is undefined, which stands for 1.
Tensor scale_for_squares(const Tensor& x, const Reduced& reduced) {
  if (x.dtype() != DType::Float64 || x.numel() == 0) return {};
  const Tensor most = largest_of(abs(x.detach()), reduced.kept);
  return where(most > 0x1p480, scalar_like(most, 0x1p-600),
               where(most < 0x1p-480, 0x1p600, full_like(most, 1)));
}

Tensor scaled(const Tensor& x, const Tensor& scale) {
  const Tensor wide = to(x.detach(), DType::Float64);
  return scale ? mul(wide, scale) : wide;
}

// The mean of x and the sum of its squared deviations over the reduced dimensions, which are kept
// with size 1. Both are float64 and belong to x · scale.
struct Deviations {
  Tensor scale;
  Tensor mean;
  Tensor squares;

  Deviations(const Tensor& x, const Reduced& reduced) : scale(scale_for_squares(x, reduced)) {
    const Tensor of = scale ? scaled(x, scale) : x.detach();
    mean = empty(reduced.kept, {DType::Float64, x.device()});
    squares = empty_like(mean);
    kernels::sum(mean, of, 1.0 / static_cast<double>(reduced.count));
    kernels::squared_deviations(squares, of, mean);
  }
};

// The same by operations, of x itself: where a graph of the gradients is asked for.
Tensor deviations(const Tensor& x, const Shape& kept) {
  const Tensor wide = to(x, DType::Float64);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(kept.numel());
  return sub(wide, mul(summed(wide, kept), 1 / count));
}

// Converts the float64 result, whose reduced dimensions are kept, to the caller's shape and dtype.
Tensor finished(const Tensor& y, const Reduced& reduced, bool keepdim, DType dtype) {
  const Shape& shape = keepdim ? reduced.kept : reduced.dropped;
  const Tensor rounded = clone(to(y, dtype));
  return rounded.as_strided(shape, contiguous_strides(shape), 0);
}

}  // namespace

Tensor var(const Tensor& x_, const Dims& dims, Int correction, Flag keepdim) {
  OpScope scope("var");
  check_floating("var", x_);
  const Tensor x = strided(x_);
  const Reduced reduced("var", x.shape(), dims);
  const auto freedom = static_cast<double>(reduced.count - correction);
  const Deviations of(x, reduced);
  Tensor y = mul(of.squares, 1 / std::max(freedom, 0.0));
  if (of.scale) y = div(div(y, of.scale), of.scale);
  // Without degrees of freedom the value is infinite, or 0/0. The slope is PyTorch's, which differs
  // if dimensions are given.
  const bool of_all_without = dims.empty() && freedom <= 0;
  return differentiable("var", {x}, finished(y, reduced, keepdim, x.dtype()),
                        [=, kept = reduced.kept, x = save(x, 0)](const Tensor& dy) -> Gradients {
                          const DType dtype = x.get().dtype();
                          if (grad_enabled()) {
                            const Tensor c = deviations(x.get(), kept);
                            const Tensor g = to(reshape(dy, kept), DType::Float64);
                            return {to(mul(c, mul(g, 2 / freedom)), dtype)};
                          }
                          const Tensor g = to(reshape(dy, kept), DType::Float64);
                          Tensor c = sub(scaled(x.get(), of.scale), of.mean);
                          if (of_all_without)
                            return {to(mul(g, where(c == 0, NAN, full_like(c, INFINITY))), dtype)};
                          c = mul(c, mul(g, 2 / freedom));
                          return {to(of.scale ? div(c, of.scale) : c, dtype)};
                        });
}

// The gradient is 0 where all deviations are 0, although the slope is infinite there.
Tensor std(const Tensor& x_, const Dims& dims, Int correction, Flag keepdim) {
  OpScope scope("std");
  check_floating("std", x_);
  const Tensor x = strided(x_);
  const Reduced reduced("std", x.shape(), dims);
  const auto freedom = static_cast<double>(reduced.count - correction);
  const Deviations of(x, reduced);
  const Tensor scaled_y = sqrt(mul(of.squares, 1 / std::max(freedom, 0.0)));
  const Tensor y = of.scale ? div(scaled_y, of.scale) : scaled_y;
  const bool of_all_without = dims.empty() && freedom <= 0;  // as in var()
  return differentiable("std", {x}, finished(y, reduced, keepdim, x.dtype()),
                        [=, kept = reduced.kept, x = save(x, 0)](const Tensor& dy) -> Gradients {
                          if (grad_enabled()) {
                            const Tensor apart = deviations(x.get(), kept);
                            const Tensor c = div(apart, unit_of(abs(apart.detach()), kept));
                            const Tensor y = sqrt(mul(summed(square(c), kept), 1 / freedom));
                            const Tensor g = to(reshape(dy, kept), DType::Float64);
                            const Tensor slope = div(g, mul(masked_fill(y, y == 0, 1), freedom));
                            return {to(mul(c, slope), x.get().dtype())};
                          }
                          if (of_all_without) return {full_like(x.get(), NAN)};
                          const Tensor g = mul(to(reshape(dy, kept), DType::Float64), 1 / freedom);
                          const Tensor c = sub(scaled(x.get(), of.scale), of.mean);
                          const Tensor slope = masked_fill(div(g, scaled_y), scaled_y == 0, 0);
                          return {to(mul(c, slope), x.get().dtype())};
                        });
}

// Equal elements share the gradient, as in PyTorch (max() along a dimension gives all of it to the
// first).
static Tensor largest_magnitude(const Tensor& x, const Reduced& reduced, bool keepdim) {
  const Tensor largest = clone(largest_of(abs(x.detach()), reduced.kept));
  const Shape& shape = keepdim ? reduced.kept : reduced.dropped;
  return differentiable(
      "norm", {x}, reshape(largest, shape),
      [x = save(x, 0), y = save(largest, kSavedConstant)](const Tensor& dy) -> Gradients {
        const DType wide = accumulator_dtype(dy.dtype());  // float16 cannot count all ties
        const Tensor hit = to(abs(x.get()) == y.get(), wide);
        const Tensor g = reshape(to(dy, wide), y.get().shape());
        Tensor dx = to(mul(hit, div(g, sum_to(hit, y.get().shape()))), dy.dtype());
        if (grad_enabled()) return {mul(dx, sign(x.get()))};
        kernels::abs_backward(dx, dx, x.get());
        return {dx};
      });
}

// The gradient by operations. It does not depend on the unit in which x is measured.
static Tensor norm_gradient(const Tensor& g, const Tensor& x_, double p) {
  if (p == 1) return mul(sign(x_), g);
  const Tensor wide = to(x_, DType::Float64);
  const Tensor x = div(wide, unit_of(abs(wide.detach()), g.shape()));
  const Tensor powers = p == 2 ? square(x) : pow(abs(x), p);
  const Tensor total = summed(powers, g.shape());
  const Tensor y = pow(masked_fill(total, total == 0, 1), 1 / p);
  const Tensor part = div(x, y);
  // Below p = 1 the power of 0 is infinite, and the gradient there is 0 all the same.
  const Tensor magnitude = p < 1 ? masked_fill(abs(part), x == 0, 1) : abs(part);
  const Tensor slope = p == 2 ? part : mul(sign(x), pow(magnitude, p - 1));
  return to(mul(slope, to(g, DType::Float64)), x_.dtype());
}

// Computes in float64 throughout. For p = 2, scale_for_squares() keeps the squares in range. For p
// other than 1 and 2, |x| is divided by its largest element first.
Tensor norm(const Tensor& x_, Real p, const Dims& dims, Flag keepdim) {
  OpScope scope("norm");
  check_floating("norm", x_);
  CHECK(p > 0, "norm: p is ", p, ", expected a number above 0, or infinity");
  const Tensor x = strided(x_);
  const Reduced reduced("norm", x.shape(), dims);
  if (p == INFINITY) return largest_magnitude(x, reduced, keepdim);
  Tensor total = empty(reduced.kept, {DType::Float64, x.device()});
  Tensor y;
  if (p == 1) {
    kernels::sum(total, abs(x.detach()), 1);
    y = total;
  } else if (p == 2) {
    const Tensor scale = scale_for_squares(x, reduced);
    kernels::squared_deviations(total, scale ? scaled(x, scale) : x.detach(), {});
    y = scale ? div(sqrt(total), scale) : sqrt(total);
  } else {
    const Tensor magnitude = abs(to(x.detach(), DType::Float64));
    const Tensor most = unit_of(magnitude, reduced.kept);
    kernels::sum(total, pow(div(magnitude, most), p), 1);
    y = mul(pow(total, 1 / p), most);
  }
  return differentiable("norm", {x}, finished(y, reduced, keepdim, x.dtype()),
                        [x = save(x, 0), y, p](const Tensor& dy) -> Gradients {
                          if (grad_enabled())
                            return {norm_gradient(reshape(dy, y.shape()), x.get(), p)};
                          const Tensor g = to(reshape(dy, y.shape()), DType::Float64);
                          const Tensor wide = to(x.get(), DType::Float64);
                          // The gradient is d|x| (|x| / y)^(p - 1), and 0 at 0.
                          Tensor dx;
                          if (p == 2) {
                            dx = mul(wide, masked_fill(div(g, y), y == 0, 0));
                          } else {
                            dx = mul(pow(abs(div(wide, y)), p - 1), g);
                            kernels::abs_backward(dx, dx, wide);
                            dx = masked_fill(dx, wide == 0, 0);
                          }
                          return {to(dx, x.get().dtype())};
                        });
}

// log Σ e^x = largest + log Σ e^(x - largest), and its gradient is the softmax of x.
Tensor logsumexp(const Tensor& x_, Int dim, Flag keepdim) {
  OpScope scope("logsumexp");
  check_floating("logsumexp", x_);
  if (x_.dim() == 0) return reshape(logsumexp(reshape(x_, {1}), dim), {});
  dim = reduced_dim("logsumexp", dim, x_.dim());
  if (x_.size(dim) == 0) return log(sum(x_, {dim}, keepdim));  // -∞
  const Tensor x = strided(x_);
  const Tensor wide = to(x.detach(), accumulator_dtype(x.dtype()));
  Tensor largest = max(wide, dim, true).values;
  largest = masked_fill(largest, abs(largest) == INFINITY, 0);  // ∞ - ∞ is no number
  const Tensor log_sum = log(sum(exp(sub(wide, largest)), {dim}, true));
  const Tensor y = clone(to(add(log_sum, largest), x.dtype()));
  const Tensor result = keepdim ? y : squeeze(y, dim);
  return differentiable(
      "logsumexp", {x}, result, [=, x = save(x, 0)](const Tensor& dy) -> Gradients {
        if (grad_enabled()) return {mul(softmax(x.get(), dim), reshape(dy, largest.shape()))};
        const Tensor wide = to(x.get(), largest.dtype());
        const Tensor g = to(reshape(dy, largest.shape()), largest.dtype());
        return {to(mul(exp(sub(sub(wide, largest), log_sum)), g), x.get().dtype())};
      });
}

}  // namespace ringgrad
