// GradScaler: dynamic loss scaling (Micikevicius et al. 2018, "Mixed Precision Training"). It is
// for float16, whose smallest number is 6e-8. The loss is multiplied by a large scale, so that
// small gradients do not vanish. The gradients are divided by it before the step. A step in which a
// gradient is infinite or NaN is skipped and halves the scale; after enough good steps the scale
// doubles.
//
//   scaler.scale(loss).backward();
//   scaler.step(optimizer);  // for each optimizer, if there are several
//   scaler.update();
//
// The scale, the test result and the counter live on the device. So nothing here waits for it, and
// a step can be captured.
#pragma once

#include <map>
#include <optional>

#include "ringgrad/autograd/shared_state.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  int64_t growth_interval = 2000;  // good steps before the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(Device device = {}, GradScalerOptions options = {});

  // Returns loss · scale, on the scaler's device, with history. It is float32 (float64 for
  // float64), because 16 bits may not hold it.
  Tensor scale(const Tensor& loss) const;
  // Divides the optimizer's gradients by the scale. step() calls it unless it was called since the
  // last update(). Call it yourself to clip the gradients in between. Throws Error on a second call
  // between two updates.
  void unscale(Optimizer& optimizer);
  // Runs the optimizer's step, or does nothing if one of its gradients is not finite. Throws Error
  // on a second call between two updates.
  void step(Optimizer& optimizer);
  // Adapts the scale to the results of the steps since the last update. Call it once, after all of
  // them. Throws Error if there was none.
  void update();

  double current_scale() const { return scale_.item<double>(); }  // waits for the device
  nn::NamedTensors state_dict() const { return {{"scale", scale_}, {"good_steps", good_steps_}}; }

 private:
  GradScalerOptions options_;
  // both are float64 []
  Tensor scale_;
  Tensor good_steps_;
  // The state of an optimizer that was unscaled since the last update.
  struct Met {
    Tensor guard;  // float64 []: 0, or NaN if a gradient is not finite
    bool stepped = false;
  };
  std::map<const Optimizer*, Met> met_;
};

// MasterWeights: float32 copies of a model's 16-bit parameters (Micikevicius et al. 2018,
// section 3.1). An update that is smaller than half the distance to a parameter's next 16-bit
// neighbour would be lost; the copies keep it.
//
//   model.to(DType::BFloat16);
//   MasterWeights masters(model.named_parameters());
//   SGD optimizer(masters.parameters(), …);
//   masters.zero_grad();
//   loss.backward();
//   masters.take_gradients();
//   optimizer.step();
//   masters.publish();
class MasterWeights {
 public:
  // REQUIRES: leaves that require a gradient.
  explicit MasterWeights(nn::NamedTensors parameters);

  // Returns the float32 leaves, under the model's names.
  const nn::NamedTensors& parameters() const { return masters_; }
  // Sets the gradients of the model's parameters to zero.
  void zero_grad();
  // Converts the model's gradients to float32 and stores them in the copies.
  void take_gradients();
  // Rounds the copies' values and stores them in the model.
  void publish();

 private:
  nn::NamedTensors model_;
  nn::NamedTensors masters_;
};

// MasterShare: MasterWeights for an optimizer whose steps several processes share. Each keeps the
// copies, and the float32 gradients, of its parts alone.
//
//   DistributedDataParallel ddp(model, group, {.zero = 2});
//   AdamW optimizer(ddp.named_parameters(), …);  // of the 16-bit parameters
//   optimizer.share(std::make_shared<MasterShare>(ddp.step_share(), ddp.named_parameters()));
//
// optimizer.step() converts the gradients and publishes the copies.
class MasterShare : public SharedState {
 public:
  // `parameters` are those of the optimizer, which has them in one group.
  MasterShare(std::shared_ptr<const StepShare> share, nn::NamedTensors parameters);

  // Collective, both. The copies of all parts, float32, under the parameters' names. The second
  // throws as nn::copy_by_name().
  nn::NamedTensors state_dict() const;
  void load_state_dict(const nn::NamedTensors& state);

  std::vector<ArenaRange> parts(const std::vector<Tensor>& parameters) const override;
  int64_t layout() const override { return share_->layout(); }
  void gather() const override;
  void zero_grad() const override { share_->zero_grad(); }
  void add(const Tensor& x) const override { share_->add(x); }
  void unite(const Tensor& x) const override { share_->unite(x); }
  bool lend_gradients() const override { return false; }  // they have 16 bits
  void take_gradients_back() const override {}

 private:
  struct Gradients {
    Tensor wide;
    std::optional<uint32_t> version = {};  // of the gradients, when they were converted
  };
  DType state_dtype(const Tensor&) const override { return DType::Float32; }

  const std::shared_ptr<const StepShare> share_;
  const nn::NamedTensors named_;
  // The copies, the gradients and the parameters themselves, for the present parts.
  mutable int64_t layout_ = -1;
  mutable std::vector<State> states_;
  mutable std::vector<Gradients> grads_;
  mutable std::vector<Tensor> values_;
};

}  // namespace ringgrad::optim
