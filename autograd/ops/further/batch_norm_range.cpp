// Batch norm of numbers whose variance does not fit the dtype, although the results need not be
// large.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/batch_norm.h"

namespace ringgrad {
namespace {

// Returns true if a variance, or a weight divided by a deviation, leaves the dtype's range,
// although the results need not. It checks only on the CPU, where looking costs nothing.
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

// float64 has no wider dtype. So a power of two brings each channel of infinite variance back into
// range; eps no longer affects the deviation there.
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

// Does not change the running statistics.
Tensor in_range(const BatchNormArguments& in, BatchNormOptions options) {
  if (!leaves_range(in, options)) return {};
  if (in.x.dtype() == DType::Float64) return scaled(in, options);
  const auto wide = [](const Tensor& t) { return t ? to(t, DType::Float64) : t; };
  options.residual = wide(options.residual);
  options.batches = {};
  const bool updates = options.training;
  return to(
      batch_norm(wide(in.x), wide(in.weight), wide(in.bias), updates ? Tensor() : wide(in.mean),
                 updates ? Tensor() : wide(in.var), options),
      in.x.dtype());
}

BEFORE_MAIN(batch_norm_ranges, batch_norm_in_range = in_range);

}  // namespace
}  // namespace ringgrad
