// Reference: the steps of RMSprop, Adagrad and Adadelta.
#include <cmath>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/descend.h"

namespace ringgrad::reference {
namespace {

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

REFERENCE(rmsprop_step);
REFERENCE(adagrad_step);
REFERENCE(adadelta_step);

}  // namespace
}  // namespace ringgrad::reference
