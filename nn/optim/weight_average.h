// WeightAverage: exponential moving averages of weights, as those of torch.optim.swa_utils'
// AveragedModel with get_ema_multi_avg_fn, or timm's ModelEma.
//
//   optim::WeightAverage average(net.state_dict(), {.decay = 0.999});
//   for (…) { …; optimizer.step(); average.update(net.state_dict()); }
//   evaluated_net.load_state_dict(average.state_dict());
#pragma once

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::optim {

struct WeightAverageOptions {
  double decay = 0.999;
  // The decay is at most (1 + n) / (10 + n) in update n, so that the first weights are forgotten.
  bool warm_up = false;
};

class WeightAverage {
 public:
  // Begins with copies of the floating tensors, 16-bit ones in float32. Throws Error unless the
  // decay is in [0, 1].
  explicit WeightAverage(const nn::NamedTensors& state, WeightAverageOptions options = {});

  // average = decay average + (1 - decay) weight. What is no floating number, such as a counter of
  // batches, is copied. Throws DataError where the names are not those of the constructor.
  void update(const nn::NamedTensors& state);

  // Under the module's names, for load_state_dict() and save_safetensors(). Shares memory.
  const nn::NamedTensors& state_dict() const { return averages_; }
  // Goes on from what state_dict() gave, after so many updates.
  void load_state_dict(const nn::NamedTensors& state, int64_t updates);
  int64_t updates() const { return updates_; }

 private:
  WeightAverageOptions options_;
  nn::NamedTensors averages_;
  int64_t updates_ = 0;
};

}  // namespace ringgrad::optim
