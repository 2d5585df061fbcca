// Batch norm of numbers whose variance the dtype does not hold, although the results need not be
// large.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/batch_norm.h"

namespace ringgrad {
namespace {

// Returns true if a variance leaves the dtype's range, or a weight divided by a deviation, although
// the results need not. On the CPU alone, where looking costs nothing.
template <class A>
bool leaves_range(const BatchNormArguments& in, const BatchNormOptions& options) {
  for (int64_t c = 0; c < in.var.numel(); ++c) {
    const A var = in.var.data<A>()[c];
    const A weight = in.weight ? in.weight.data<A>()[c] : 1;
    const double scale = weight / std::sqrt(var + options.eps);
    const bool overflows = std::isfinite(scale) && std::isinf(static_cast<A>(scale));
    if (overflows || (options.training && std::isinf(var))) return true;
  }
  return false;
}
bool leaves_range(const BatchNormArguments& in, const BatchNormOptions& options) {
  if (!in.x.device().is_cpu()) return false;
  return in.var.dtype() == DType::Float32 ? leaves_range<float>(in, options)
                                          : leaves_range<double>(in, options);
}

// Beyond float64 there is no wider dtype. A power of two brings each channel whose variance is
// infinite back into the range, where eps is no part of the deviation any more.
Tensor scaled(const BatchNormArguments& in, const BatchNormOptions& options) {
  const Shape& shape = in.x.shape();
  const Dims dims = {0, 2};
  const auto channel = [](const Tensor& t) { return reshape(t, {t.numel(), 1}); };
  const Tensor scale = channel(where(eq(in.var, INFINITY), 0x1p-540, ones_like(in.var)));
  const Tensor x = mul(reshape(in.x, {shape[0], shape[1], -1}), scale);
  const Tensor apart = sub(x, mean(x, dims, true));
  const Tensor eps = mul(mul(scale, scale), options.eps);
  Tensor y = div(apart, sqrt(add(mean(mul(apart, apart), dims, true), eps)));
  if (in.weight) y = mul(y, channel(in.weight));
  if (in.bias) y = add(y, channel(in.bias));
  y = reshape(y, shape);
  if (options.residual) y = add(y, options.residual);
  if (options.activation == Activation::Relu) y = relu(y);
  return options.max_pool ? max_pool2d(y, {.kernel = options.max_pool}) : y;
}

// Leaves the running statistics as they are.
Tensor in_range(const BatchNormArguments& in, const Tensor& x, const Tensor& weight,
                const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                BatchNormOptions options) {
  if (!leaves_range(in, options)) return {};
  if (x.dtype() == DType::Float64) return scaled(in, options);
  const auto wide = [](const Tensor& t) { return t ? to(t, DType::Float64) : t; };
  options.residual = wide(options.residual);
  options.batches = {};
  const bool updates = options.training;
  return to(batch_norm(wide(x), wide(weight), wide(bias), updates ? Tensor() : wide(running_mean),
                       updates ? Tensor() : wide(running_var), options),
            x.dtype());
}

BEFORE_MAIN(batch_norm_ranges, batch_norm_in_range = in_range);

}  // namespace
}  // namespace ringgrad
