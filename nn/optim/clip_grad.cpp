
#include "ringgrad/nn/optim/clip_grad.h"

#include "ringgrad/autograd/arena.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::optim {

// Returns the existing gradients. Parameters that no backward has reached do not get one here.
static std::vector<ArenaRange> gradient_ranges(const char* name,
                                               const std::vector<Tensor>& parameters) {
  CHECK(!parameters.empty(), name, ": there are no parameters");
  std::vector<Tensor> reached;
  for (const Tensor& parameter : parameters) {
    CHECK(parameter.defined(), name, ": parameter ", &parameter - parameters.data(),
          " is undefined, expected a tensor; "
          "leave out what a module was made without, such as a bias");
    if (parameter.grad()) reached.push_back(parameter);
  }
  return arena_ranges(reached);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm) {
  CHECK(max_norm >= 0, "clip_grad_norm_: max_norm is ", max_norm, ", expected at least 0");
  NoGradGuard no_grad;
  const std::vector<ArenaRange> ranges = gradient_ranges("clip_grad_norm_", parameters);
  if (ranges.empty()) return zeros({}, {.device = parameters[0].device()});
  const Device device = ranges[0].grads.device();
  Tensor total = zeros({}, {.device = device});  // float32 unless a gradient is float64
  for (const ArenaRange& range : ranges) {
    CHECK_AS(DeviceError, range.grads.device() == device, "clip_grad_norm_: gradients on ", device,
             " and ", range.grads.device(), ", expected one device");
    const DType dtype = accumulator_dtype(range.grads.dtype());
    const Tensor squares = empty({}, {dtype, device});
    kernels::sum_squares(squares, range.grads);
    if (dtype == DType::Float64) total = to(total, dtype);
    total = add(total, to(squares, total.dtype()));
  }
  const Tensor norm = sqrt(total);
  const Tensor factor = clamp(max_norm / (norm + 1e-6), 0, 1);
  // NaN becomes 0, because the gaps of the arena must stay zeros, and 0 times NaN is NaN.
  kernels::clamp_backward(factor, factor, factor, -1, 2);
  for (const ArenaRange& range : ranges) {
    const Tensor everywhere =
        to(factor, range.grads.dtype()).as_strided(range.grads.shape(), {0}, 0);
    begin_write("clip_grad_norm_", range.grads);
    kernels::mul(range.grads, range.grads, everywhere);
  }
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, Real value) {
  CHECK(value >= 0, "clip_grad_value_: the value is ", value, ", expected at least 0");
  for (const ArenaRange& range : gradient_ranges("clip_grad_value_", parameters)) {
    begin_write("clip_grad_value_", range.grads);
    kernels::clamp(range.grads, range.grads, -value, value);
  }
}

}  // namespace ringgrad::optim
