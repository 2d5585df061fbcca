// Rows for batch and layer normalisation.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

struct Moments {
  double mean = 0;
  double var = 0;
  int64_t count = 0;
};

// Returns the indices of channel c's elements in x [N, C, …].
std::vector<int64_t> places_of(const Array& x, int64_t c) {
  const int64_t pixels = x.numel() ? x.numel() / x.size(0) / x.size(1) : 0;
  std::vector<int64_t> places;
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t i = 0; i < pixels; ++i) places.push_back((n * x.size(1) + c) * pixels + i);
  return places;
}

Moments moments_of(const Array& x, const std::vector<int64_t>& places) {
  Moments m;
  m.count = static_cast<int64_t>(places.size());
  for (int64_t i : places) m.mean += x.values[i];
  m.mean /= static_cast<double>(m.count);
  for (int64_t i : places) m.var += (x.values[i] - m.mean) * (x.values[i] - m.mean);
  m.var /= static_cast<double>(m.count);
  return m;
}

struct Variant {
  bool training = true;
  bool affine = true;
  bool residual = false;
  bool relu = false;
  int64_t max_pool = 0;
};
constexpr double kMomentum = 0.3;
constexpr double kEps = 1e-3;

Array max_pooled(const Array& x, int64_t window) {
  Array y({x.size(0), x.size(1), x.size(2) / window, x.size(3) / window});
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Shape at = y.index(i);
    y.values[i] = -INFINITY;
    for (int64_t pixel = 0; pixel < window * window; ++pixel)
      y.values[i] = std::max(y.values[i], x(at[0], at[1], at[2] * window + pixel / window,
                                            at[3] * window + pixel % window));
  }
  return y;
}

// Inputs: x, running_mean, running_var, then weight and bias where affine, then the residual. The
// results: y, and the running statistics afterwards.
OpSpec batch_norm_spec(const std::string& name, Variant v, std::vector<Shape> shapes) {
  OpSpec spec;
  spec.name = name;
  if (v.max_pool)
    spec.kernels = {"batch_norm_max_pool", "batch_norm_max_pool_backward",
                    "batch_norm_backward_reduce"};
  else
    spec.kernels = {"batch_norm_apply", "batch_norm_backward_reduce", "batch_norm_backward_apply"};
  if (v.training && v.max_pool)
    spec.kernels.insert(spec.kernels.end(), {"batch_norm_stats", "axpby"});
  else if (v.training)
    spec.kernels.insert(spec.kernels.end(),
                        {"batch_norm", "batch_norm_backward", "batch_norm_stats", "axpby"});
  spec.keeps_blocked = v.max_pool == 0;  // pooling does where it has vectors
  spec.terms = 64;
  spec.run = [v](const Tensors& in) {
    Tensor running_mean = empty(in[1].shape(), {in[1].dtype(), in[1].device()});
    Tensor running_var = empty_like(running_mean);
    copy_(running_mean, in[1]);
    copy_(running_var, in[2]);
    const Tensor y = batch_norm(in[0], v.affine ? in[3] : Tensor(), v.affine ? in[4] : Tensor(),
                                running_mean, running_var,
                                {.training = v.training,
                                 .momentum = kMomentum,
                                 .eps = kEps,
                                 .activation = v.relu ? Activation::Relu : Activation::None,
                                 .residual = v.residual ? in.back() : Tensor(),
                                 .max_pool = v.max_pool});
    return Tensors{y, running_mean, running_var};
  };
  spec.reference = [v](const Arrays& in) {
    const Array& x = in[0];
    Array y(x.shape);
    Array running_mean = in[1];
    Array running_var = in[2];
    for (int64_t c = 0; c < x.size(1); ++c) {
      const std::vector<int64_t> places = places_of(x, c);
      Moments m = {running_mean(c), running_var(c)};
      if (v.training && !places.empty()) {
        m = moments_of(x, places);
        const double unbiased =
            m.var * static_cast<double>(m.count) / static_cast<double>(m.count - 1);
        running_mean(c) = (1 - kMomentum) * running_mean(c) + kMomentum * m.mean;
        running_var(c) = (1 - kMomentum) * running_var(c) + kMomentum * unbiased;
      }
      for (int64_t i : places) {
        double value = (x.values[i] - m.mean) / std::sqrt(m.var + kEps);
        if (v.affine) value = value * in[3](c) + in[4](c);
        if (v.residual) value += in.back().values[i];
        y.values[i] = v.relu ? std::max(0.0, value) : value;
      }
    }
    return Arrays{v.max_pool ? max_pooled(y, v.max_pool) : y, running_mean, running_var};
  };
  for (const Shape& shape : shapes) {
    const Shape channels = {shape[1]};
    std::vector<Input> inputs = {uniform(shape), uniform(channels).kept_wide().without_grad(),
                                 uniform(channels, 0.5, 2).kept_wide().without_grad()};
    if (v.affine)
      inputs.insert(inputs.end(), {uniform(channels).kept_wide(), uniform(channels).kept_wide()});
    if (v.residual) inputs.push_back(uniform(shape));
    spec.samples.push_back({inputs, true});
  }
  return spec;
}

// wide: the weight and bias stay float32 beside a 16-bit input.
OpSpec layer_norm_spec(const std::string& name, int dims, bool affine, std::vector<Shape> shapes,
                       bool wide = false) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"layer_norm", "layer_norm_backward"};
  spec.terms = 64;
  const auto normalized = [dims](const Shape& shape) {
    Shape result;
    for (int d = shape.dim() - dims; d < shape.dim(); ++d) result.push_back(shape[d]);
    return result;
  };
  spec.run = [=](const Tensors& in) {
    return Tensors{layer_norm(in[0], normalized(in[0].shape()), affine ? in[1] : Tensor(),
                              affine ? in[2] : Tensor(), kEps)};
  };
  spec.reference = [=](const Arrays& in) {
    const int64_t columns = normalized(in[0].shape).numel();
    const int64_t rows = in[0].numel() / columns;
    const Array x = reshaped(in[0], {rows, columns});
    Array y = x;
    for (int64_t n = 0; n < rows; ++n) {
      double mean = 0;
      double var = 0;
      for (int64_t c = 0; c < columns; ++c) mean += x(n, c) / static_cast<double>(columns);
      for (int64_t c = 0; c < columns; ++c)
        var += (x(n, c) - mean) * (x(n, c) - mean) / static_cast<double>(columns);
      for (int64_t c = 0; c < columns; ++c) {
        y(n, c) = (x(n, c) - mean) / std::sqrt(var + kEps);
        if (affine) y(n, c) = y(n, c) * in[1].values[c] + in[2].values[c];
      }
    }
    return Arrays{reshaped(y, in[0].shape)};
  };
  for (const Shape& shape : shapes) {
    std::vector<Input> inputs = {uniform(shape)};
    const Input parameter =
        wide ? uniform(normalized(shape)).kept_wide() : uniform(normalized(shape));
    if (affine) inputs.insert(inputs.end(), {parameter, parameter});
    spec.samples.push_back({inputs, true});
  }
  return spec;
}

}  // namespace

std::vector<OpSpec> norm_specs() {
  // cuDNN has engines for 16 channels, and for none of the others.
  const std::vector<Shape> images = {{2, 3, 4, 4}, {3, 17, 2, 2}, {2, 16, 4, 4},
                                     {4, 3},       {2, 2, 5},     {0, 3, 2, 2}};
  const std::vector<Shape> pooled = {{2, 3, 4, 4}, {3, 17, 5, 7}, {2, 2, 12, 9}, {0, 3, 2, 2}};
  const auto with = [&](std::vector<Shape> more) {
    more.insert(more.begin(), images.begin(), images.end());
    return more;
  };
  std::vector<OpSpec> specs = {
      batch_norm_spec("batch_norm", {},
                      with({{2, 3, 41, 37}, {80, 70, 1, 1}, {270, 18}, {2, 3, 2, 1, 2, 2}})),
      batch_norm_spec("batch_norm without weight", {.affine = false}, images),
      batch_norm_spec("batch_norm with relu", {.relu = true}, images),
      batch_norm_spec("batch_norm with residual", {.residual = true}, images),
      batch_norm_spec("batch_norm with residual and relu", {.residual = true, .relu = true},
                      with({{9, 3, 17, 17}, {270, 18}})),
      batch_norm_spec("batch_norm in evaluation", {.training = false}, images),
      batch_norm_spec("batch_norm in evaluation with residual and relu",
                      {.training = false, .residual = true, .relu = true}, images),
      batch_norm_spec("batch_norm with max pool", {.max_pool = 2}, pooled),
      batch_norm_spec("batch_norm with relu and max pool 3", {.relu = true, .max_pool = 3},
                      {{2, 3, 4, 4}, {2, 17, 7, 5}, {0, 3, 3, 3}}),
      batch_norm_spec("batch_norm with relu and max pool", {.relu = true, .max_pool = 2}, pooled),
      batch_norm_spec("batch_norm in evaluation with max pool", {.training = false, .max_pool = 2},
                      pooled),
      layer_norm_spec("layer_norm", 1, true,
                      {{3, 5}, {2, 3, 40}, {2, 3, 2, 4}, {7}, {0, 3}, {5, 1300}, {4200, 8}}),
      layer_norm_spec("layer_norm over two dimensions", 2, true, {{3, 5}, {2, 3, 4}, {0, 3, 2}}),
      layer_norm_spec("layer_norm without weight", 1, false,
                      {{3, 5}, {2, 3, 2, 4}, {0, 3}, {5, 1300}}),
      layer_norm_spec("layer_norm with float32 parameters", 1, true, {{3, 5}, {2, 3, 40}, {0, 3}},
                      true),
  };
  const auto fails = [](const Shape& x, const Shape& channels, const Shape& running,
                        BatchNormOptions options) {
    return [=] {
      batch_norm(zeros(x), ones(channels), zeros(channels), zeros(running), ones(running), options);
    };
  };
  specs[0].errors = {
      error<ShapeError>("batch_norm: the input has shape [3], expected at least 2 dimensions",
                        fails({3}, {3}, {3}, {})),
      error<ShapeError>("batch_norm: the weight has shape [4], the input [2, 3], expected [3]",
                        fails({2, 3}, {4}, {3}, {})),
      error<ShapeError>(
          "batch_norm: the running mean has shape [2], the input [2, 3], expected [3]",
          fails({2, 3}, {3}, {2}, {})),
      error<ShapeError>("batch_norm: the input [1, 3, 1, 1] has one value per channel, "
                        "expected at least 2 in training",
                        fails({1, 3, 1, 1}, {3}, {3}, {})),
      error<ShapeError>("batch_norm: the residual has shape [2, 1], the input [2, 3]",
                        fails({2, 3}, {3}, {3}, {.residual = zeros({2, 1})})),
      error<ShapeError>(
          "batch_norm: the input has shape [2, 3, 1, 4], expected [N, C, H, W] to be pooled by 2×2",
          fails({2, 3, 1, 4}, {3}, {3}, {.max_pool = 2})),
      error<ShapeError>(
          "batch_norm: the input has shape [2, 3, 4], expected [N, C, H, W] to be pooled by 2×2",
          fails({2, 3, 4}, {3}, {3}, {.max_pool = 2})),
      error<Error>("batch_norm: max_pool is -1, expected the side of a window, or 0",
                   fails({2, 3, 4, 4}, {3}, {3}, {.max_pool = -1})),
      error<Error>(
          "batch_norm: evaluation needs the running mean and variance, and they are undefined",
          [] {
            batch_norm(zeros({2, 3}), {}, {}, {}, {}, {.training = false});
          }),
      error<DTypeError>(
          "batch_norm: the running mean has dtype float64, the input float32, expected float32",
          [] {
            const Tensor running = zeros({3}, {.dtype = DType::Float64});
            batch_norm(zeros({2, 3}), {}, {}, running, running);
          }),
      error<DTypeError>("batch_norm: unsupported dtype int64", [] {
        batch_norm(zeros({2, 3}, {.dtype = DType::Int64}), {}, {}, {}, {});
      })};
  const auto layer_fails = [](const Shape& x, const Shape& normalized, const Shape& w) {
    return [=] { layer_norm(zeros(x), normalized, zeros(w)); };
  };
  specs[11].errors = {
      error<ShapeError>(
          "layer_norm: the input has shape [2, 3], expected its last dimensions to be [4]",
          layer_fails({2, 3}, {4}, {4})),
      error<ShapeError>("expected its last dimensions to be []", layer_fails({2, 3}, {}, {})),
      error<ShapeError>("layer_norm: the weight has shape [2], expected [3]",
                        layer_fails({2, 3}, {3}, {2}))};
  return specs;
}

}  // namespace ringgrad::test
