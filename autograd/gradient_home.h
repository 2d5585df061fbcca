// The preallocated gradient buffer of a parameter. An operation may write the gradient there
// itself, so that nothing has to be added afterwards.
//
// After Optimizer::zero_grad() a parameter's gradient, a view of the arena, is known to be zeros.
// The first operation in a pass whose backward computes a gradient for that parameter may write it
// there, once, and return it. AccumulateGrad then finds that the gradient has already arrived.
// Later operations in the same pass return separate gradients as usual, and the engine adds.
//
// "Known to be zeros" does not rely on the callers: zeros_known() notes the version of the array,
// and any write that bumps it (core/tensor.h) invalidates the note. So does a step that is recorded
// or replayed on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The operation's side. An operation constructs it from an input and calls it in backward.
class GradientHome {
 public:
  // If the input is undefined or not a leaf, there is no buffer.
  explicit GradientHome(const Tensor& input);
  // Returns the leaf's grad, zeros for the operation to overwrite or to add to. Returns an
  // undefined tensor if grad is not known to be zeros, if another operation has claimed it, if the
  // leaf is frozen or has hooks, or in a pass that accumulates nothing. REQUIRES: called from a
  // closure of the running backward pass, which returns the tensor as this input's gradient. It
  // reads its saved tensors before, because they may lie in the same storage.
  Tensor claim() const;
  // Does the same, but returns new memory like `like` instead of an undefined tensor.
  Tensor claim_or_empty(const Tensor& like) const;

 private:
  std::weak_ptr<AutogradMeta> leaf_;
  TensorOptions options_;  // the leaf may be converted or moved before backward
};

// Notes that the gradients of these leaves have just been filled with zeros. REQUIRES: they share
// one storage.
void zeros_known(const std::vector<Tensor>& leaves);

// The pass's side. If a gradient that was claimed has not arrived when the pass ends, because the
// pass has failed, it becomes zeros again.
void give_back(AutogradMeta& leaf);

// AccumulateGrad's side. Returns true if an operation has claimed leaf.grad(); then there is
// nothing to add. If `gradient` is another tensor, because the engine has added further gradients,
// it is copied there first.
bool arrived_at_home(const Tensor& leaf, const Tensor& gradient);
// Calls begin_write() for adding to the leaf's gradient, and returns true if that is known to be
// zeros. Neighbours in the arena that are known to be zeros stay so.
bool begin_adding(const Tensor& leaf);

}  // namespace ringgrad
