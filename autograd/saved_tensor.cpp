#include "ringgrad/autograd/saved_tensor.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/op_scope.h"

namespace ringgrad {

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (!tensor) return;
  tensor_ = tensor.detach();
  version_ = tensor.storage()->version();
}

const Tensor& SavedTensor::get() const {
  CHECK(!tensor_ || tensor_.storage()->version() == version_, current_op(), ": a tensor of shape ", tensor_.shape(),
        " saved for backward was modified in place (version ", tensor_.storage()->version(), ", saved at version ",
        version_, "), or another view of its memory was, such as a parameter of the same arena; modify it after ",
        "backward, or modify a copy");
  return tensor_;
}

}  // namespace ringgrad
