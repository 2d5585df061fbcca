// MasterWeights: float32 copies of a model's 16-bit parameters (Micikevicius et al. 2018, section 3.1). An update that
// is smaller than half the distance to a parameter's next 16-bit neighbour would be lost; the copies keep it.
//
//   model.to(DType::BFloat16);
//   MasterWeights masters(model.named_parameters());
//   SGD optimizer(masters.parameters(), …);
//   masters.zero_grad();  loss.backward();  masters.take_gradients();  optimizer.step();  masters.publish();
#pragma once

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::optim {

class MasterWeights {
 public:
  // REQUIRES: leaves that require a gradient.
  explicit MasterWeights(nn::NamedTensors parameters);

  const nn::NamedTensors& parameters() const { return masters_; }  // float32 leaves under the model's names
  void zero_grad();                                                // of the model's parameters
  void take_gradients();  // the model's gradients, in float32, become the copies'
  void publish();         // the copies' values, rounded, become the model's

 private:
  nn::NamedTensors model_, masters_;
};

}  // namespace ringgrad::optim
