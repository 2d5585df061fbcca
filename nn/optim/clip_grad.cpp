#include "ringgrad/nn/optim/clip_grad.h"

#include "ringgrad/autograd/grad_mode.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/tensor.h"
#include "ringgrad/nn/arena.h"

namespace ringgrad::optim {

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  CHECK(max_norm >= 0, "clip_grad_norm_: max_norm is ", max_norm, ", expected at least 0");
  CHECK(!parameters.empty(), "clip_grad_norm_: there are no parameters");
  NoGradGuard no_grad;
  std::vector<Tensor> reached;  // by backward: the others have no gradient, and get none
  for (const Tensor& parameter : parameters) {
    CHECK(parameter.defined(), "clip_grad_norm_: parameter ", &parameter - parameters.data(),
          " is undefined, expected a tensor; leave out what a module was made without, such as a bias");
    if (parameter.grad()) reached.push_back(parameter);
  }
  if (reached.empty()) return zeros({}, {.device = parameters[0].device()});
  const std::vector<nn::ArenaRange> ranges = nn::arena_ranges(reached);
  const Device device = ranges[0].grads.device();
  Tensor total = zeros({}, {.device = device});  // float32 unless a gradient is float64
  for (const nn::ArenaRange& range : ranges) {
    CHECK_AS(DeviceError, range.grads.device() == device, "clip_grad_norm_: gradients on ", device, " and ",
             range.grads.device(), ", expected one device");
    const DType dtype = accumulator_dtype(range.grads.dtype());
    const Tensor squares = empty({}, {dtype, device});
    kernels::sum_squares(squares, range.grads);
    if (dtype == DType::Float64) total = to(total, dtype);
    total = add(total, to(squares, total.dtype()));
  }
  const Tensor norm = sqrt(total);
  const Tensor factor = clamp(max_norm / (norm + 1e-6), 0, 1);
  kernels::clamp_backward(factor, factor, factor, 0, 1);  // NaN becomes 0: times NaN, the gaps would be zeros no more
  for (const nn::ArenaRange& range : ranges) {
    const Tensor everywhere = to(factor, range.grads.dtype()).as_strided(range.grads.shape(), {0}, 0);
    begin_write("clip_grad_norm_", range.grads);
    kernels::mul(range.grads, range.grads, everywhere);
  }
  return norm;
}

}  // namespace ringgrad::optim
