// MixedPrecision: the meaning of --dtype and --amp for a training step. The levels are apex's:
//   O0  float32 throughout
//   O1  16-bit activations, float32 parameters
//   O2  16-bit parameters with float32 copies that the optimizer steps
//   O3  16-bit parameters, and nothing else
// Batch norm's parameters and statistics and the loss are float32 at every level. With float16 the
// loss is scaled.
#pragma once

#include <memory>
#include <optional>

#include "ringgrad/nn/module.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {

// Returns the recipe's optimizer for these parameters.
std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe,
                                                 const nn::NamedTensors& parameters);

class MixedPrecision {
 public:
  // Converts the model's parameters if the level says so. Call it before the model is wrapped.
  // `divided`: the ranks share the optimizer's steps (Optimizer::share).
  MixedPrecision(const Recipe& recipe, nn::Module& model, Device device, bool divided = false);

  // Returns the parameters that the optimizer must step. Call it on every rank once the model has
  // its first values.
  nn::NamedTensors trained_parameters();

  void zero_grad(optim::Optimizer& optimizer);
  Tensor scale(const Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }
  // Clips the gradients' norm if clip_norm > 0, then steps. A step whose gradients overflowed is
  // skipped.
  void step(optim::Optimizer& optimizer, double clip_norm);
  // Returns the share for the optimizer: one with float32 copies if the level has them.
  std::shared_ptr<const optim::StepShare> with_copies(
      std::shared_ptr<const optim::StepShare> share);
  // Then gradients that are not finite are no mistake.
  bool may_overflow() const { return scaler_.has_value(); }

  // Returns "master.NAME" and "scaler.NAME", beside the optimizer's state; empty at O0 and O1
  // without float16.
  nn::NamedTensors state_dict() const;
  // Takes its part out of the state, and returns the optimizer's rest. Throws DataError if an entry
  // is missing.
  nn::NamedTensors load(const nn::NamedTensors& state);

 private:
  nn::Module& model_;
  bool wants_masters_;
  bool divided_;
  std::unique_ptr<optim::MasterWeights> masters_;
  std::shared_ptr<optim::MasterShare> shared_masters_;  // if they are divided
  std::optional<optim::GradScaler> scaler_;
};

}  // namespace ringgrad::program
