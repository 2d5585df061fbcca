// WeightAverage: exponential moving averages of weights, like torch.optim.swa_utils' AveragedModel
// with get_ema_multi_avg_fn, or timm's ModelEma.
//
//   optim::WeightAverage average(net.state_dict(), {.decay = 0.999});
//   for (…) { …; optimizer.step(); average.update(net.state_dict()); }
//   evaluated_net.load_state_dict(average.state_dict());
#pragma once

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::optim {

struct WeightAverageOptions {
  double decay = 0.999;
  // Limits the decay to (1 + n) / (10 + n) in update n, so that the initial weights are forgotten.
  bool warm_up = false;
};

class WeightAverage {
 public:
  // Begins with copies of the floating tensors; 16-bit ones become float32. Throws Error unless the
  // decay is in [0, 1].
  explicit WeightAverage(const nn::NamedTensors& state, WeightAverageOptions options = {});

  // average = decay average + (1 - decay) weight. Tensors that are not floating, such as a counter
  // of batches, are copied. Throws DataError unless the names are those of the constructor.
  void update(const nn::NamedTensors& state);

  // Returns the averages under the module's names, for load_state_dict() and save_safetensors().
  // Shares memory.
  const nn::NamedTensors& state_dict() const { return averages_; }
  // Continues from a state_dict() that was taken after `updates` updates.
  void load_state_dict(const nn::NamedTensors& state, int64_t updates);
  int64_t updates() const { return updates_; }

 private:
  WeightAverageOptions options_;
  nn::NamedTensors averages_;
  int64_t updates_ = 0;
};

}  // namespace ringgrad::optim
