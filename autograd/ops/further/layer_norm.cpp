#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// The gradients of normalized_rows(), where a graph of them is asked for. A row is [M, P]: a number
// of its part of the weight for each P neighbours.
Gradients by_operations(const Tensor& dy_, const Tensor& x_, const Tensor& weight, int64_t groups,
                        int64_t columns, double eps) {
  const OutputInfo* const of_weight = wanted_input(1);
  const OutputInfo* const of_bias = wanted_input(2);
  const int64_t numbers = weight    ? weight.numel() / groups
                          : of_bias ? of_bias->shape.numel() / groups
                                    : 1;
  const DType wide = accumulator_dtype(x_.dtype());
  const auto rows = [&](const Tensor& t) {
    return to(reshape(t, {t.numel() / columns / groups, groups, numbers, columns / numbers}), wide);
  };
  const auto row_mean = [](const Tensor& t) { return mean(t, {2, 3}, true); };
  const Tensor dy = rows(dy_);
  const Tensor x = rows(x_);
  const Tensor apart = sub(x, row_mean(x));
  const Tensor rstd = pow(add(row_mean(square(apart)), eps), -0.5);
  const Tensor xhat = mul(apart, rstd);
  const Tensor g = weight ? mul(dy, reshape(weight, {1, groups, numbers, 1})) : dy;
  const Tensor dx = mul(rstd, sub(sub(g, row_mean(g)), mul(xhat, row_mean(mul(g, xhat)))));
  return {to(reshape(dx, x_.shape()), x_.dtype()),
          of_weight ? reshape(sum(mul(dy, xhat), {0, 3}), of_weight->shape) : Tensor(),
          of_bias ? reshape(sum(dy, {0, 3}), of_bias->shape) : Tensor()};
}

// Normalises the rows of x, of `columns` elements each. kernels::layer_norm describes weight and
// bias.
Tensor normalized_rows(const char* operation, const Tensor& x_, int64_t columns,
                       const Tensor& weight_, const Tensor& bias_, int64_t groups, double eps) {
  if (x_.numel() == 0) return normalized_nothing(operation, {x_, weight_, bias_});
  const Shape matrix = {x_.numel() / columns, columns};
  const auto rows = [matrix](const Tensor& t) {
    return t.as_strided(matrix, contiguous_strides(matrix), t.storage_offset());
  };
  const DType per_row = accumulator_dtype(x_.dtype());
  const Tensor x = strided_contiguous(x_);
  const Tensor weight = weight_ ? strided_contiguous(to(weight_, per_row)) : weight_;
  const Tensor bias = bias_ ? strided_contiguous(to(bias_, per_row)) : bias_;
  Tensor y = empty_like(x);
  Tensor mean = empty({matrix[0]}, {per_row, x.device()});
  Tensor rstd = empty_like(mean);
  kernels::layer_norm(rows(y), mean, rstd, rows(x), weight, bias, groups, eps);
  return differentiable(
      operation, {x, weight, bias}, y,
      [x = save(x, 0), mean = save(mean, kSavedConstant), rstd = save(rstd, kSavedConstant),
       weight = save(weight, 1), wants_weight = wants_grad(weight), wants_bias = wants_grad(bias),
       shape = weight ? weight.shape()
               : bias ? bias.shape()
                      : Shape(),
       groups, rows, eps](const Tensor& dy) -> Gradients {
        if (grad_enabled())
          return by_operations(dy, x.get(), weight.get(), groups, rows(x.get()).size(1), eps);
        Tensor dx = empty_like(x.get());
        Tensor dweight = wants_weight ? empty(shape, mean.get().options()) : Tensor();
        Tensor dbias = wants_bias ? empty(shape, mean.get().options()) : Tensor();
        kernels::layer_norm_backward(rows(dx), dweight, dbias, rows(strided_contiguous(dy)),
                                     rows(x.get()), mean.get(), rstd.get(), weight.get(), groups);
        return {dx, dweight, dbias};
      });
}

// Checks the optional weight and bias, which must have this shape.
void check_affine(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Shape& shape) {
  for (const Tensor* value : {&weight, &bias}) {
    if (!*value) continue;
    check_parameter(operation, x, *value);
    CHECK_AS(ShapeError, value->shape() == shape, operation, ": the ",
             value == &weight ? "weight" : "bias", " has shape ", value->shape(), ", expected ",
             shape);
  }
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, Real eps) {
  OpScope scope("layer_norm");
  check_floating("layer_norm", x);
  const int kept = x.dim() - normalized_shape.dim();
  bool fits = kept >= 0 && normalized_shape.dim() > 0;
  for (int d = 0; fits && d < normalized_shape.dim(); ++d)
    fits = x.shape()[kept + d] == normalized_shape[d];
  CHECK_AS(ShapeError, fits, "layer_norm: the input has shape ", x.shape(),
           ", expected its last dimensions to be ", normalized_shape);
  check_affine("layer_norm", x, weight, bias, normalized_shape);
  return normalized_rows("layer_norm", x, normalized_shape.numel(), weight, bias, 1, eps);
}

// One row of the kernel is one group of channels. The pixels of a channel share a weight and a
// bias.
Tensor group_norm(const Tensor& x, Int64 groups, const Tensor& weight, const Tensor& bias,
                  Real eps) {
  OpScope scope("group_norm");
  check_floating("group_norm", x);
  CHECK_AS(ShapeError, x.dim() >= 2 && groups >= 1 && x.size(1) % groups == 0 && x.size(1) > 0,
           "group_norm: the input has shape ", x.shape(),
           ", expected [N, C, …] with C a multiple of the ", groups, " groups");
  check_affine("group_norm", x, weight, bias, {x.size(1)});
  const int64_t columns = x.size(0) ? x.numel() / (x.size(0) * groups) : 0;
  return normalized_rows("group_norm", x, columns, weight, bias, groups, eps);
}

}  // namespace ringgrad
