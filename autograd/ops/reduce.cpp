#include "ringgrad/autograd/ops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

void check_number(const char* operation, const Tensor& x) {
  check_defined(operation, x);
  if (x.dtype() == DType::Bool)
    throw_unsupported_dtype(operation, x.dtype(), "a number; convert with to(x, DType::Int64)");
}

// A tensor without dimensions counts as having one, as in PyTorch.
int reduced_dim(const char* operation, int d, int dim) { return normalize_dim(operation, d, std::max(dim, 1)); }

// x's shape with the reduced dimensions of size 1, and without them.
struct Reduced {
  Shape kept, dropped;
  int64_t count = 1;  // elements that become one

  Reduced(const char* operation, const Shape& shape, const Dims& dims) : kept(shape) {
    std::array<bool, kMaxDims> reduced{};
    if (dims.empty()) reduced.fill(true);
    for (int d : dims) {
      d = reduced_dim(operation, d, shape.dim());
      CHECK_AS(ShapeError, !reduced[d], operation, ": dimension ", d, " appears twice in the dimensions to reduce");
      reduced[d] = true;
    }
    for (int d = 0; d < shape.dim(); ++d) {
      if (!reduced[d]) {
        dropped.push_back(shape[d]);
        continue;
      }
      count *= shape[d];
      kept[d] = 1;
    }
  }
};

Tensor scaled_sum(const char* name, const Tensor& x_, const Reduced& reduced, double scale, bool keepdim) {
  const Tensor x = strided(x_);
  const Tensor kept = empty(reduced.kept, {x.dtype(), x.device()});
  kernels::sum(kept, x, scale);
  const Shape& shape = keepdim ? reduced.kept : reduced.dropped;
  return differentiable(name, {x}, kept.as_strided(shape, contiguous_strides(shape), 0),
                        [from = x.shape(), kept = reduced.kept, scale](const Tensor& dy) -> Gradients {
                          const Tensor g = reshape(dy, kept);
                          return {broadcast_view(scale == 1 ? g : mul(g, scale), from)};
                        });
}

using Extreme = Kernel<void(const Tensor& y, const Tensor& index, const Tensor& x)>;

ValuesAndIndices extreme(const char* name, const Extreme& kernel, const Tensor& x_, int dim, bool keepdim) {
  OpScope scope(name);
  check_number(name, x_);
  dim = reduced_dim(name, dim, x_.dim());
  if (x_.dim() == 0) return extreme(name, kernel, reshape(x_, {1}), 0, false);
  CHECK_AS(IndexError, x_.shape()[dim] > 0, name, ": dimension ", dim, " of shape ", x_.shape(),
           " is empty, expected at least one element");
  const Tensor x = strided_contiguous(x_);
  Shape kept = x.shape(), shape = x.shape();
  kept[dim] = 1;
  shape.erase(dim);
  if (keepdim) shape = kept;
  const Tensor values = empty(kept, {x.dtype(), x.device()}), indices = empty(kept, {DType::Int64, x.device()});
  const auto row = [dim](const Tensor& t) {  // [O, I]
    const Tensor around = around_dim(t, dim);
    const Shape two = {around.size(0), around.size(2)};
    return around.as_strided(two, contiguous_strides(two), around.storage_offset());
  };
  kernel(row(values), row(indices), around_dim(x, dim));
  const Tensor y = values.as_strided(shape, contiguous_strides(shape), 0);
  const auto backward = [from = x.shape(), kept, dim, indices = save(indices)](const Tensor& dy) -> Gradients {
    Tensor dx = zeros(from, {dy.dtype(), dy.device()});
    const Tensor g = strided_contiguous(reshape(dy, kept));
    kernels::scatter_add(around_dim(dx, dim), around_dim(g, dim), around_dim(indices.get(), dim));
    return {dx};
  };
  return {differentiable(name, {x}, y, backward), indices.as_strided(shape, contiguous_strides(shape), 0)};
}

Tensor extreme_of_all(const char* name, const Extreme& kernel, const Tensor& x) {
  check_number(name, x);
  CHECK_AS(IndexError, x.numel() > 0, name, ": a tensor of shape ", x.shape(),
           " is empty, expected at least one element");
  return extreme(name, kernel, reshape(x, {x.numel()}), 0, false).values;
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  OpScope scope("sum");
  check_defined("sum", x);
  if (!is_floating(x.dtype()) && x.dtype() != DType::Int64) return sum(to(x, DType::Int64), dims, keepdim);
  return scaled_sum("sum", x, Reduced("sum", x.shape(), dims), 1, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  OpScope scope("mean");
  check_floating("mean", x);
  const Reduced reduced("mean", x.shape(), dims);
  return scaled_sum("mean", x, reduced, 1.0 / static_cast<double>(reduced.count), keepdim);  // 0 · ∞ = NaN when empty
}

Tensor var(const Tensor& x_, const Dims& dims, int correction, bool keepdim) {
  OpScope scope("var");
  check_floating("var", x_);
  // The mean of 16-bit numbers is rounded, and the sum of their squares overflows.
  if (const DType wide = accumulator_dtype(x_.dtype()); wide != x_.dtype())
    return to(var(to(x_, wide), dims, correction, keepdim), x_.dtype());
  const Tensor x = strided(x_);
  const Reduced reduced("var", x.shape(), dims);
  const auto freedom = static_cast<double>(reduced.count - correction);
  // Two passes: no cancellation when the mean is large.
  const Tensor centred = sub(x.detach(), mean(x.detach(), dims, true));
  const Tensor y = mul(sum(mul(centred, centred), dims, keepdim), 1 / std::max(freedom, 0.0));
  // Where no freedom is left the value is infinite, or 0/0; the slope is PyTorch's, which differs over given
  // dimensions.
  const bool of_all_without = dims.empty() && freedom <= 0;
  return differentiable("var", {x}, y,
                        [=, kept = reduced.kept, centred = save(centred)](const Tensor& dy) -> Gradients {
                          const Tensor g = reshape(dy, kept), &c = centred.get();
                          if (of_all_without) return {mul(g, where(c == 0, NAN, full_like(c, INFINITY)))};
                          return {mul(c, mul(g, 2 / freedom))};
                        });
}

Tensor max(const Tensor& x) { return extreme_of_all("max", kernels::max, x); }
Tensor min(const Tensor& x) { return extreme_of_all("min", kernels::min, x); }
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim) { return extreme("max", kernels::max, x, dim, keepdim); }
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim) { return extreme("min", kernels::min, x, dim, keepdim); }

Tensor argmax(const Tensor& x, int dim, bool keepdim) {
  NoGradGuard no_grad;
  return extreme("argmax", kernels::max, x, dim, keepdim).indices;
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
  NoGradGuard no_grad;
  return extreme("argmin", kernels::min, x, dim, keepdim).indices;
}
Tensor argmax(const Tensor& x) { return argmax(flatten(x), 0); }
Tensor argmin(const Tensor& x) { return argmin(flatten(x), 0); }

// The square root whose gradient at 0 is 0, where the slope is infinite: of what is 0 because all its parts are.
static Tensor root(const char* name, const Tensor& x) {
  OpScope scope(name);
  Tensor y = empty_like(x);
  kernels::sqrt(y, x);
  return differentiable(name, {x}, y, [y = save(y)](const Tensor& dy) -> Gradients {
    return {masked_fill(div(dy, mul(y.get(), 2)), y.get() == 0, 0)};
  });
}

Tensor std(const Tensor& x, const Dims& dims, int correction, bool keepdim) {
  check_floating("std", x);
  const Tensor wide = to(x, accumulator_dtype(x.dtype()));
  return to(root("std", var(wide, dims, correction, keepdim)), x.dtype());
}

// Equals share the gradient, as in PyTorch (of max() along a dimension the first has all of it).
static Tensor largest_magnitude(const Tensor& x, const Reduced& reduced, bool keepdim) {
  Tensor largest = abs(x.detach());
  for (int d = 0; d < x.dim(); ++d)
    if (reduced.kept[d] != x.shape()[d]) largest = max(largest, d, true).values;
  const Shape& shape = keepdim ? reduced.kept : reduced.dropped;
  return differentiable("norm", {x}, reshape(largest, shape),
                        [x = save(x), y = save(largest)](const Tensor& dy) -> Gradients {
                          const Tensor hit = to(abs(x.get()) == y.get(), dy.dtype());
                          Tensor dx = mul(hit, div(reshape(dy, y.get().shape()), sum_to(hit, y.get().shape())));
                          kernels::abs_backward(dx, dx, x.get());
                          return {dx};
                        });
}

Tensor norm(const Tensor& x_, double p, const Dims& dims, bool keepdim) {
  check_floating("norm", x_);
  CHECK(p > 0, "norm: p is ", p, ", expected a number above 0, or infinity");
  const Tensor x = to(x_, accumulator_dtype(x_.dtype()));  // the sum of many 16-bit powers overflows
  if (p == 2) return to(root("norm", sum(square(x), dims, keepdim)), x_.dtype());
  if (p == 1) return to(sum(abs(x), dims, keepdim), x_.dtype());
  if (p < INFINITY) {
    const Tensor total = sum(pow(abs(x), p), dims, keepdim), safe = masked_fill(total, total == 0, 1);
    return to(where(total == 0, total, pow(safe, 1 / p)), x_.dtype());
  }
  return to(largest_magnitude(strided(x), Reduced("norm", x.shape(), dims), keepdim), x_.dtype());
}

Tensor logsumexp(const Tensor& x, int dim, bool keepdim) {
  check_floating("logsumexp", x);
  if (x.dim() == 0) return reshape(logsumexp(reshape(x, {1}), dim), {});
  dim = reduced_dim("logsumexp", dim, x.dim());
  if (x.size(dim) == 0) return log(sum(x, {dim}, keepdim));  // -∞
  Tensor largest = max(x.detach(), dim, true).values;
  largest = masked_fill(largest, abs(largest) == INFINITY, 0);  // ∞ - ∞ is no number
  const Tensor y = add(log(sum(exp(sub(x, largest)), dim, true)), largest);
  return keepdim ? y : squeeze(y, dim);
}

}  // namespace ringgrad
