// Reference: the steps of SGD and Adam, element by element.
#include <cmath>

#include "ringgrad/core/reference/descend.h"

namespace ringgrad::reference {
namespace {

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
               const Tensor& max_v_in, const Tensor& grad, const Tensor& lr_in, const Tensor& step,
               const kernels::AdamStepOptions& o) {
  const Results<double> p(flat(param));
  const Results<double> m(flat(m_in));
  const Results<double> v(flat(v_in));
  const Results<double> max_v(flat(max_v_in));
  const double lr = number_in(lr_in);
  const double t = number_in(step) + 1;
  descend(param, grad, lr, o.decoupled ? 0 : o.weight_decay, [&](int64_t i, double g) {
    const double mean = o.beta1 * m(i) + (1 - o.beta1) * g;
    double square = o.beta2 * v(i) + (1 - o.beta2) * g * g;
    m(i) = mean;
    v(i) = square;
    if (max_v_in) max_v(i) = square = square < max_v(i) ? max_v(i) : square;
    const double root = std::sqrt(square / (1 - std::pow(o.beta2, t)));
    const double decay = o.decoupled ? o.weight_decay * p(i) : 0;
    return mean / (1 - std::pow(o.beta1, t)) / (root + o.eps) + decay;
  });
}

REFERENCE(sgd_step);
REFERENCE(adam_step);

}  // namespace
}  // namespace ringgrad::reference
