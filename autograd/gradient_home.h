// Where an operation writes the gradient of a parameter itself, so that nothing has to be added up
// afterwards.
//
// After Optimizer::zero_grad() a parameter's gradient, a view of the arena, is known to be zeros.
// The first operation whose backward wants to give that parameter a gradient may then write it
// there, once, and return it: AccumulateGrad finds that it has arrived already. Whoever comes later
// in the same pass returns a gradient of his own as ever, and the engine adds.
//
// "Known to be zeros" is not a promise of whoever wrote last: zeros_known() notes the version of
// the array, and any write that bumps it (core/tensor.h) ends what is known.
#pragma once

#include <memory>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The operation's side: made with an input, asked in backward.
class GradientHome {
 public:
  // May be undefined, or no leaf: then there is no home.
  explicit GradientHome(const Tensor& input);
  // The gradient's own array, zeros that are to be overwritten; undefined where it is not known to
  // be zeros, is somebody else's already, or is not wanted: by a leaf that is frozen or has hooks,
  // or in a pass that accumulates nothing. REQUIRES: a closure of the running backward pass, which
  // then returns it as this input's gradient.
  Tensor claim() const;
  // The same, or memory of its own like `like`.
  Tensor claim_or_empty(const Tensor& like) const;

 private:
  std::weak_ptr<AutogradMeta> leaf_;
};

// That the gradients of these leaves have just been filled with zeros. REQUIRES: they share one
// storage.
void zeros_known(const std::vector<Tensor>& leaves);

// AccumulateGrad's side. Whether `gradient` has been written to where it belongs, or, where only a
// part of it has, copies it there: then nothing is left to do.
bool arrived_at_home(const Tensor& leaf, const Tensor& gradient);
// begin_write() for adding to the leaf's gradient: its neighbours in the arena stay known to be
// zeros, where they are.
void begin_adding(const Tensor& leaf);

}  // namespace ringgrad
