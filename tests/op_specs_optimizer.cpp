// Rows for the optimizer steps over flat arrays: several steps in a row, so that the state matters.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/op_spec.h"

namespace ringgrad::test {
namespace {

constexpr double kLr = 0.125;  // exact in every dtype
constexpr int kSteps = 3;

Tensor copy_of(const Tensor& x) {
  Tensor y = empty_like(x);
  kernels::copy(y, x);
  return y;
}

// Calls step(lr, step tensor) for steps 0, 1, 2.
template <class Step>
void for_each_step(const Tensor& x, Step step) {
  const Tensor lr = full({}, kLr, {.dtype = DType::Float64, .device = x.device()});
  for (int i = 0; i < kSteps; ++i) step(lr, full({}, i, {.dtype = DType::Int64, .device = x.device()}));
}

// Inputs: param, grad. Results: param and the momentum buffer.
OpSpec sgd(const std::string& name, const kernels::SgdStepOptions& o) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"sgd_step"};
  spec.run = [o](const Tensors& in) {
    const Tensor param = copy_of(in[0]),
                 buffer = o.momentum != 0 ? full(in[0].shape(), NAN, in[0].options()) : Tensor();
    for_each_step(param,
                  [&](const Tensor& lr, const Tensor& step) { kernels::sgd_step(param, buffer, in[1], lr, step, o); });
    return buffer ? Tensors{param, buffer} : Tensors{param};
  };
  spec.reference = [o](const Arrays& in) {
    Array param = in[0], buffer(in[0].shape);
    for (int step = 0; step < kSteps; ++step)
      for (int64_t i = 0; i < param.numel(); ++i) {
        const double g = in[1](i) + o.weight_decay * param(i);
        buffer(i) = step == 0 ? g : o.momentum * buffer(i) + (1 - o.dampening) * g;
        param(i) -= kLr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * buffer(i) : buffer(i));
      }
    return o.momentum != 0 ? Arrays{param, buffer} : Arrays{param};
  };
  spec.samples = {{uniform({5}), uniform({5})}, {uniform({1000}), uniform({1000})}, {uniform({0}), uniform({0})}};
  spec.terms = kSteps;
  spec.bare_kernel = true;
  return spec;
}

// Inputs: param, grad. Results: param, m and v.
OpSpec adam(const std::string& name, const kernels::AdamStepOptions& o) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"adam_step"};
  spec.run = [o](const Tensors& in) {
    const Tensor param = copy_of(in[0]), m = zeros_like(in[0]), v = zeros_like(in[0]);
    for_each_step(param,
                  [&](const Tensor& lr, const Tensor& step) { kernels::adam_step(param, m, v, in[1], lr, step, o); });
    return Tensors{param, m, v};
  };
  spec.reference = [o](const Arrays& in) {
    Array param = in[0], m(in[0].shape), v(in[0].shape);
    for (int t = 1; t <= kSteps; ++t)
      for (int64_t i = 0; i < param.numel(); ++i) {
        double g = in[1](i);
        if (o.decoupled)
          param(i) -= kLr * o.weight_decay * param(i);
        else
          g += o.weight_decay * param(i);
        m(i) = o.beta1 * m(i) + (1 - o.beta1) * g;
        v(i) = o.beta2 * v(i) + (1 - o.beta2) * g * g;
        param(i) -= kLr * (m(i) / (1 - std::pow(o.beta1, t))) / (std::sqrt(v(i) / (1 - std::pow(o.beta2, t))) + o.eps);
      }
    return Arrays{param, m, v};
  };
  const auto grad = [](const Shape& shape) { return uniform(shape).away_from(0); };  // its sign decides the step
  spec.samples = {{uniform({5}), grad({5})}, {uniform({1000}), grad({1000})}, {uniform({0}), grad({0})}};
  spec.terms = kSteps;
  spec.bare_kernel = true;
  return spec;
}

}  // namespace

std::vector<OpSpec> optimizer_specs() {
  return {
      sgd("sgd_step", {}),
      sgd("sgd_step with weight decay", {.weight_decay = 0.25}),
      sgd("sgd_step with momentum", {.momentum = 0.9}),
      sgd("sgd_step with dampening", {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.125}),
      sgd("sgd_step with Nesterov momentum", {.momentum = 0.9, .weight_decay = 0.125, .nesterov = true}),
      adam("adam_step", {}),
      adam("adam_step with weight decay", {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.25}),
      adam("adam_step with decoupled weight decay", {.weight_decay = 0.25, .decoupled = true}),
  };
}

}  // namespace ringgrad::test
