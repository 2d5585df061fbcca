#include "ringgrad/nn/optim/weight_average.h"

#include <algorithm>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::optim {

WeightAverage::WeightAverage(const nn::NamedTensors& state, WeightAverageOptions options)
    : options_(options) {
  CHECK(options.decay >= 0 && options.decay <= 1, "WeightAverage: the decay is ", options.decay,
        ", expected a number in [0, 1]");
  for (const auto& [name, tensor] : state) {
    CHECK(tensor.defined(), "WeightAverage: '", name, "' is an undefined tensor");
    const DType dtype =
        is_floating(tensor.dtype()) ? accumulator_dtype(tensor.dtype()) : tensor.dtype();
    averages_.emplace_back(name, copy_of(tensor, {dtype, tensor.device()}));
  }
}

void WeightAverage::update(const nn::NamedTensors& state) {
  NoGradGuard no_grad;
  nn::check_by_name("WeightAverage", averages_, state, true);
  const auto n = static_cast<double>(++updates_);
  const double decay =
      options_.warm_up ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
  for (const auto& [name, tensor] : state) {
    const auto found = std::find_if(averages_.begin(), averages_.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    CHECK_AS(DataError, found != averages_.end(), "WeightAverage: there is no '", name, "'");
    const Tensor& average = found->second;
    const bool averaged = is_floating(average.dtype());
    const Tensor change = averaged ? to(tensor.detach(), average.dtype()) - average : Tensor();
    // From the nearer end, so that 0 and 1 are exact. What does not change keeps its bits.
    if (!averaged || decay < 0.5) copy_(average, tensor);
    if (averaged) average.add_(change, decay < 0.5 ? -decay : 1 - decay);
  }
}

void WeightAverage::load_state_dict(const nn::NamedTensors& state, int64_t updates) {
  CHECK(updates >= 0, "WeightAverage: ", updates, " updates, expected at least 0");
  nn::copy_by_name("WeightAverage", averages_, state, true);
  updates_ = updates;
}

}  // namespace ringgrad::optim
