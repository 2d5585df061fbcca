// Rows for the optimizer steps over flat arrays: several steps in a row, so that the state matters.
#include <array>

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

// Inputs: param, grad. Results: param, then what is kept: f(g, kept) changes it and returns the direction.
OpSpec adaptive(const std::string& name, int kept, double weight_decay, double lr_decay,
                std::function<void(const Tensor& param, const Tensors& kept, const Tensor& grad, const Tensor& lr,
                                   const Tensor& step)>
                    run,
                std::function<double(double g, std::array<double, 3>& kept)> f) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {name.substr(0, name.find(' '))};
  spec.run = [=](const Tensors& in) {
    Tensors results = {copy_of(in[0])}, state;
    for (int k = 0; k < kept; ++k) state.push_back(zeros_like(in[0]));
    for_each_step(in[0], [&](const Tensor& lr, const Tensor& step) { run(results[0], state, in[1], lr, step); });
    results.insert(results.end(), state.begin(), state.end());
    return results;
  };
  spec.reference = [=](const Arrays& in) {
    Arrays results(1 + kept, Array(in[0].shape));
    results[0] = in[0];
    for (int64_t i = 0; i < in[0].numel(); ++i) {
      std::array<double, 3> state{};
      for (int step = 0; step < kSteps; ++step) {
        const double g = in[1](i) + weight_decay * results[0](i);
        results[0](i) -= kLr / (1 + step * lr_decay) * f(g, state);
      }
      for (int k = 0; k < kept; ++k) results[1 + k](i) = state[k];
    }
    return results;
  };
  const auto grad = [](const Shape& shape) { return uniform(shape).away_from(0); };
  spec.samples = {{uniform({5}), grad({5})}, {uniform({1000}), grad({1000})}, {uniform({0}), grad({0})}};
  spec.terms = 4 * kSteps;
  spec.bare_kernel = true;
  return spec;
}

std::vector<OpSpec> adaptive_specs() {
  using kernels::AdadeltaStepOptions, kernels::AdagradStepOptions, kernels::RmspropStepOptions;
  const auto square = [](double x) { return x * x; };
  const RmspropStepOptions plain = {.eps = 0.01, .weight_decay = 0.25};
  const RmspropStepOptions full = {.alpha = 0.75, .eps = 0.25, .momentum = 0.5, .centered = true};
  const AdagradStepOptions adagrad = {.lr_decay = 0.5, .eps = 0.01, .weight_decay = 0.25, .initial = 0.5};
  const AdadeltaStepOptions adadelta = {.rho = 0.75, .eps = 0.01, .weight_decay = 0.25};
  return {adaptive(
              "rmsprop_step", 1, plain.weight_decay, 0,
              [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                kernels::rmsprop_step(p, s[0], {}, {}, g, lr, step, plain);
              },
              [=](double g, auto& s) {
                s[0] = plain.alpha * s[0] + (1 - plain.alpha) * square(g);
                return g / (std::sqrt(s[0]) + plain.eps);
              }),
          adaptive(
              "rmsprop_step with all that it has", 3, 0, 0,
              [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                kernels::rmsprop_step(p, s[0], s[1], s[2], g, lr, step, full);
              },
              [=](double g, auto& s) {
                s[0] = full.alpha * s[0] + (1 - full.alpha) * square(g);
                s[1] = full.alpha * s[1] + (1 - full.alpha) * g;
                return s[2] = full.momentum * s[2] + g / (std::sqrt(s[0] - square(s[1])) + full.eps);
              }),
          adaptive(
              "adagrad_step", 1, adagrad.weight_decay, adagrad.lr_decay,
              [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                kernels::adagrad_step(p, s[0], g, lr, step, adagrad);
              },
              [=](double g, auto& s) {
                s[0] += square(g);
                return g / (std::sqrt(adagrad.initial + s[0]) + adagrad.eps);
              }),
          adaptive(
              "adadelta_step", 2, adadelta.weight_decay, 0,
              [=](auto& p, auto& s, auto& g, auto& lr, auto& step) {
                kernels::adadelta_step(p, s[0], s[1], g, lr, step, adadelta);
              },
              [=](double g, auto& s) {
                s[0] = adadelta.rho * s[0] + (1 - adadelta.rho) * square(g);
                const double d = std::sqrt(s[1] + adadelta.eps) / std::sqrt(s[0] + adadelta.eps) * g;
                s[1] = adadelta.rho * s[1] + (1 - adadelta.rho) * square(d);
                return d;
              })};
}

}  // namespace

std::vector<OpSpec> optimizer_specs() {
  std::vector<OpSpec> specs = {
      sgd("sgd_step", {}),
      sgd("sgd_step with weight decay", {.weight_decay = 0.25}),
      sgd("sgd_step with momentum", {.momentum = 0.9}),
      sgd("sgd_step with dampening", {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.125}),
      sgd("sgd_step with Nesterov momentum", {.momentum = 0.9, .weight_decay = 0.125, .nesterov = true}),
      adam("adam_step", {}),
      adam("adam_step with weight decay", {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.25}),
      adam("adam_step with decoupled weight decay", {.weight_decay = 0.25, .decoupled = true}),
  };
  for (OpSpec& spec : adaptive_specs()) specs.push_back(std::move(spec));
  return specs;
}

}  // namespace ringgrad::test
