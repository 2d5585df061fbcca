// SharedState: how processes that share an optimizer's steps exchange its state.
#pragma once

#include "ringgrad/autograd/step_share.h"

namespace ringgrad {

class SharedState : public StepShare {
 public:
  std::vector<Tensor> whole(const std::vector<Tensor>& parameters, const std::vector<State>& states,
                            size_t array) const override;
  void keep(const std::vector<State>& states, const NamedTensors& whole) const override;

 private:
  // Returns the dtype of a parameter's state.
  virtual DType state_dtype(const Tensor& parameter) const { return parameter.dtype(); }
};

}  // namespace ringgrad
