// Reference: the step of SGD, element by element.
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

REFERENCE(sgd_step);

}  // namespace
}  // namespace ringgrad::reference
