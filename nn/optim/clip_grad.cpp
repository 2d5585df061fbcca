#include "ringgrad/nn/optim/clip_grad.h"

#include "ringgrad/autograd/arena.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

namespace {

// Gradients that exist, as flat arrays. Parameters that no backward has reached do not get one
// here. Those of shared steps are this process's parts, unless they can be had whole.
class FlatGradients {
 public:
  FlatGradients(const char* name, const std::vector<Tensor>& parameters) {
    CHECK(!parameters.empty(), name, ": there are no parameters");
    for (Optimizer* optimizer : sharing_optimizers(name, parameters)) {
      const StepShare& share = *optimizer->step_share();
      if (share.lend_gradients()) {
        lenders_.push_back(&share);
        continue;
      }
      parts_.push_back({&share, optimizer->flat_grads()});
    }
    std::vector<Tensor> reached;
    for (const Tensor& parameter : parameters) {
      CHECK(parameter.defined(), name, ": parameter ", &parameter - parameters.data(),
            " is undefined, expected a tensor; "
            "leave out what a module was made without, such as a bias");
      if (parameter.grad()) reached.push_back(parameter);
    }
    for (const ArenaRange& range : arena_ranges(reached)) whole_.push_back(range.grads);
  }
  ~FlatGradients() {
    for (const StepShare* lender : lenders_) lender->take_gradients_back();
  }
  FlatGradients(const FlatGradients&) = delete;

  struct Parts {
    const StepShare* share;
    std::vector<Tensor> flats;
  };
  const std::vector<Tensor>& whole() const { return whole_; }
  const std::vector<Parts>& parts() const { return parts_; }
  std::vector<Tensor> all() const {
    std::vector<Tensor> all = whole_;
    for (const Parts& parts : parts_) all.insert(all.end(), parts.flats.begin(), parts.flats.end());
    return all;
  }

 private:
  std::vector<const StepShare*> lenders_;
  std::vector<Parts> parts_;
  std::vector<Tensor> whole_;
};

// Adds the squares of these gradients to `total`.
void add_squares(Tensor& total, const std::vector<Tensor>& flats) {
  for (const Tensor& flat : flats) {
    CHECK_AS(DeviceError, flat.device() == total.device(), "clip_grad_norm_: gradients on ",
             total.device(), " and ", flat.device(), ", expected one device");
    const DType dtype = accumulator_dtype(flat.dtype());
    const Tensor squares = empty({}, {dtype, flat.device()});
    kernels::sum_squares(squares, flat);
    if (dtype == DType::Float64) total = to(total, dtype);
    total = add(total, to(squares, total.dtype()));
  }
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm) {
  CHECK(max_norm >= 0, "clip_grad_norm_: max_norm is ", max_norm, ", expected at least 0");
  NoGradGuard no_grad;
  const FlatGradients gradients("clip_grad_norm_", parameters);
  const std::vector<Tensor> all = gradients.all();
  const Device device = all.empty() ? parameters[0].device() : all[0].device();
  Tensor total = zeros({}, {.device = device});  // float32 unless a gradient is float64
  if (all.empty() && gradients.parts().empty()) return total;
  add_squares(total, gradients.whole());
  for (const FlatGradients::Parts& parts : gradients.parts()) {
    Tensor own = zeros({}, {.dtype = DType::Float64, .device = device});
    add_squares(own, parts.flats);
    parts.share->add(own);
    const DType wide = accumulator_dtype(parameters[0].dtype());
    total = add(to(total, wide), to(own, wide));
  }
  const Tensor norm = sqrt(total);
  const Tensor factor = clamp(max_norm / (norm + 1e-6), 0, 1);
  // NaN becomes 0, because the gaps of the arena must stay zeros, and 0 times NaN is NaN.
  kernels::clamp_backward(factor, factor, factor, -1, 2);
  for (const Tensor& flat : all) {
    const Tensor everywhere = to(factor, flat.dtype()).as_strided(flat.shape(), {0}, 0);
    begin_write("clip_grad_norm_", flat);
    kernels::mul(flat, flat, everywhere);
  }
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, Real value) {
  CHECK(value >= 0, "clip_grad_value_: the value is ", value, ", expected at least 0");
  const FlatGradients gradients("clip_grad_value_", parameters);
  for (const Tensor& flat : gradients.all()) {
    begin_write("clip_grad_value_", flat);
    kernels::clamp(flat, flat, -value, value);
  }
}

}  // namespace ringgrad::optim
