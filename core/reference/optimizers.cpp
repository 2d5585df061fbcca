// Reference: the optimizers' steps, element by element.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// The element of a tensor of one element.
double number_in(const Tensor& x) { return Elements<double>(flat(x))(0); }

// param -= rate direction(i, grad + weight_decay param) for every element i; nothing where the rate
// is NaN.
template <class Direction>
void descend(const Tensor& param, const Tensor& grad, double rate, double weight_decay,
             const Direction& direction) {
  if (std::isnan(rate)) return;
  const Results<double> p(flat(param));
  const Elements<double> g(flat(grad));
  for (int64_t i = 0; i < param.numel(); ++i)
    p(i) = p(i) - rate * direction(i, g(i) + weight_decay * p(i));
}

void sgd_step(Stream, const Tensor& param, const Tensor& buffer_in, const Tensor& grad,
              const Tensor& lr, const Tensor& step, const kernels::SgdStepOptions& o) {
  const Results<double> buffer(flat(buffer_in));
  const bool first = number_in(step) == 0;
  descend(param, grad, number_in(lr), o.weight_decay, [&](int64_t i, double g) {
    if (o.momentum == 0) return g;
    const double velocity = first ? g : o.momentum * buffer(i) + (1 - o.dampening) * g;
    buffer(i) = velocity;
    return o.nesterov ? g + o.momentum * velocity : velocity;
  });
}

void adam_step(Stream, const Tensor& param, const Tensor& m_in, const Tensor& v_in,
               const Tensor& grad, const Tensor& lr_in, const Tensor& step,
               const kernels::AdamStepOptions& o) {
  const Results<double> p(flat(param));
  const Results<double> m(flat(m_in));
  const Results<double> v(flat(v_in));
  const double lr = number_in(lr_in);
  const double t = number_in(step) + 1;
  descend(param, grad, lr, o.decoupled ? 0 : o.weight_decay, [&](int64_t i, double g) {
    const double mean = o.beta1 * m(i) + (1 - o.beta1) * g;
    const double square = o.beta2 * v(i) + (1 - o.beta2) * g * g;
    m(i) = mean;
    v(i) = square;
    const double root = std::sqrt(square / (1 - std::pow(o.beta2, t)));
    const double decay = o.decoupled ? o.weight_decay * p(i) : 0;
    return mean / (1 - std::pow(o.beta1, t)) / (root + o.eps) + decay;
  });
}

void rmsprop_step(Stream, const Tensor& param, const Tensor& v_in, const Tensor& m_in,
                  const Tensor& buffer_in, const Tensor& grad, const Tensor& lr, const Tensor&,
                  const kernels::RmspropStepOptions& o) {
  const Results<double> v(flat(v_in));
  const Results<double> m(flat(m_in));
  const Results<double> buffer(flat(buffer_in));
  descend(param, grad, number_in(lr), o.weight_decay, [&](int64_t i, double g) {
    const double square = o.alpha * v(i) + (1 - o.alpha) * g * g;
    const double mean = o.centered ? o.alpha * m(i) + (1 - o.alpha) * g : 0;
    v(i) = square;
    if (o.centered) m(i) = mean;
    // The variance of equal gradients is 0. Rounding may make it negative, which has no root.
    const double variance = square - mean * mean;
    const double d = g / (std::sqrt(variance < 0 ? 0 : variance) + o.eps);
    if (o.momentum == 0) return d;
    const double velocity = o.momentum * buffer(i) + d;
    buffer(i) = velocity;
    return velocity;
  });
}

void adagrad_step(Stream, const Tensor& param, const Tensor& sum_in, const Tensor& grad,
                  const Tensor& lr, const Tensor& step, const kernels::AdagradStepOptions& o) {
  const Results<double> sum(flat(sum_in));
  const double rate = number_in(lr) / (1 + number_in(step) * o.lr_decay);
  descend(param, grad, rate, o.weight_decay, [&](int64_t i, double g) {
    const double total = sum(i) + g * g;
    sum(i) = total;
    return g / (std::sqrt(o.initial + total) + o.eps);
  });
}

void adadelta_step(Stream, const Tensor& param, const Tensor& v_in, const Tensor& u_in,
                   const Tensor& grad, const Tensor& lr, const Tensor&,
                   const kernels::AdadeltaStepOptions& o) {
  const Results<double> v(flat(v_in));
  const Results<double> u(flat(u_in));
  descend(param, grad, number_in(lr), o.weight_decay, [&](int64_t i, double g) {
    const double square = o.rho * v(i) + (1 - o.rho) * g * g;
    const double d = std::sqrt(u(i) + o.eps) / std::sqrt(square + o.eps) * g;
    v(i) = square;
    u(i) = o.rho * u(i) + (1 - o.rho) * d * d;
    return d;
  });
}

REGISTER_KERNEL(sgd_step, DeviceType::CPU, Provider::Reference, sgd_step);
REGISTER_KERNEL(adam_step, DeviceType::CPU, Provider::Reference, adam_step);
REGISTER_KERNEL(rmsprop_step, DeviceType::CPU, Provider::Reference, rmsprop_step);
REGISTER_KERNEL(adagrad_step, DeviceType::CPU, Provider::Reference, adagrad_step);
REGISTER_KERNEL(adadelta_step, DeviceType::CPU, Provider::Reference, adadelta_step);

}  // namespace
}  // namespace ringgrad::reference
