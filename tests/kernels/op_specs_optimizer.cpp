// Rows for the optimizer steps over flat arrays: several steps in a row, so that the state matters.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

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
  for (int i = 0; i < kSteps; ++i)
    step(lr, full({}, i, {.dtype = DType::Int64, .device = x.device()}));
}

// Inputs: param, grad. Results: param and the momentum buffer.
OpSpec sgd(const std::string& name, const kernels::SgdStepOptions& o) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"sgd_step"};
  spec.run = [o](const Tensors& in) {
    const Tensor param = copy_of(in[0]);
    const Tensor buffer = o.momentum != 0 ? full(in[0].shape(), NAN, in[0].options()) : Tensor();
    for_each_step(param, [&](const Tensor& lr, const Tensor& step) {
      kernels::sgd_step(param, buffer, in[1], lr, step, o);
    });
    return buffer ? Tensors{param, buffer} : Tensors{param};
  };
  spec.samples = {{uniform({5}), uniform({5})},
                  {uniform({1000}), uniform({1000})},
                  {uniform({0}), uniform({0})}};
  spec.terms = kSteps;
  spec.bare_kernel = true;
  return spec;
}

// Inputs: param, grad. Results: param, m and v, and max_v for amsgrad.
OpSpec adam(const std::string& name, const kernels::AdamStepOptions& o, bool amsgrad = false) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"adam_step"};
  spec.run = [=](const Tensors& in) {
    const Tensor param = copy_of(in[0]);
    const Tensor m = zeros_like(in[0]);
    const Tensor v = zeros_like(in[0]);
    const Tensor max_v = amsgrad ? zeros_like(in[0]) : Tensor();
    double scale = 1;
    for_each_step(param, [&](const Tensor& lr, const Tensor& step) {
      // For amsgrad the gradients shrink, so that the largest v is an earlier one.
      const Tensor grad = empty_like(in[1]);
      kernels::affine(grad, in[1], scale, 0);
      if (amsgrad) scale /= 16;
      kernels::adam_step(param, m, v, max_v, grad, lr, step, o);
    });
    return amsgrad ? Tensors{param, m, v, max_v} : Tensors{param, m, v};
  };
  // Its sign decides the step.
  const auto grad = [](const Shape& shape) { return uniform(shape).away_from(0); };
  spec.samples = {
      {uniform({5}), grad({5})}, {uniform({1000}), grad({1000})}, {uniform({0}), grad({0})}};
  spec.terms = kSteps;
  spec.bare_kernel = true;
  return spec;
}

// Inputs: param, grad. Results: param, then what is kept.
OpSpec adaptive(const std::string& name, int kept,
                std::function<void(const Tensor& param, const Tensors& kept, const Tensor& grad,
                                   const Tensor& lr, const Tensor& step)>
                    run) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {name.substr(0, name.find(' '))};
  spec.run = [=](const Tensors& in) {
    Tensors results = {copy_of(in[0])};
    Tensors state;
    for (int k = 0; k < kept; ++k) state.push_back(zeros_like(in[0]));
    for_each_step(in[0], [&](const Tensor& lr, const Tensor& step) {
      run(results[0], state, in[1], lr, step);
    });
    results.insert(results.end(), state.begin(), state.end());
    return results;
  };
  const auto grad = [](const Shape& shape) { return uniform(shape).away_from(0); };
  spec.samples = {
      {uniform({5}), grad({5})}, {uniform({1000}), grad({1000})}, {uniform({0}), grad({0})}};
  spec.terms = 4 * kSteps;
  spec.bare_kernel = true;
  return spec;
}

std::vector<OpSpec> adaptive_specs() {
  using kernels::AdadeltaStepOptions, kernels::AdagradStepOptions, kernels::RmspropStepOptions;
  const RmspropStepOptions plain = {.eps = 0.01, .weight_decay = 0.25};
  const RmspropStepOptions full = {.alpha = 0.75, .eps = 0.25, .momentum = 0.5, .centered = true};
  const AdagradStepOptions adagrad = {
      .lr_decay = 0.5, .eps = 0.01, .weight_decay = 0.25, .initial = 0.5};
  const AdadeltaStepOptions adadelta = {.rho = 0.75, .eps = 0.01, .weight_decay = 0.25};
  return {adaptive("rmsprop_step", 1,
                   [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                     kernels::rmsprop_step(p, s[0], {}, {}, g, lr, step, plain);
                   }),
          adaptive("rmsprop_step with all that it has", 3,
                   [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                     kernels::rmsprop_step(p, s[0], s[1], s[2], g, lr, step, full);
                   }),
          adaptive("adagrad_step", 1,
                   [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                     kernels::adagrad_step(p, s[0], g, lr, step, adagrad);
                   }),
          adaptive("adadelta_step", 2, [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
            kernels::adadelta_step(p, s[0], s[1], g, lr, step, adadelta);
          })};
}

}  // namespace

std::vector<OpSpec> optimizer_specs() {
  std::vector<OpSpec> specs = {
      sgd("sgd_step", {}),
      sgd("sgd_step with weight decay", {.weight_decay = 0.25}),
      sgd("sgd_step with momentum", {.momentum = 0.9}),
      sgd("sgd_step with dampening", {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.125}),
      sgd("sgd_step with Nesterov momentum",
          {.momentum = 0.9, .weight_decay = 0.125, .nesterov = true}),
      adam("adam_step", {}),
      adam("adam_step with weight decay",
           {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.25}),
      adam("adam_step with decoupled weight decay", {.weight_decay = 0.25, .decoupled = true}),
      adam("adam_step with amsgrad", {.beta1 = 0.8, .beta2 = 0.5, .weight_decay = 0.25}, true),
  };
  for (OpSpec& spec : adaptive_specs()) specs.push_back(std::move(spec));
  return specs;
}

}  // namespace ringgrad::test
