// Parameter: a tensor that its module knows by name. It is a member of the module, and otherwise a
// Tensor like any other. The module lists the member itself, so assigning to it replaces the
// module's tensor:
//
//   // A member; also possible in a constructor's body.
//   nn::Parameter scale = register_parameter("scale", ones({n}));
//   decoder.weight = embedding.weight;  // tied: both modules now train one tensor
//
// register_parameter()'s result converts only to a Parameter, not to a Tensor. A Tensor would be
// another handle, and assigning to it would not reach the module.
#pragma once

#include <memory>
#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad::nn {

// A name in a module's list and its tensor: the member, or what the last member held.
struct Registration {
  std::string name;
  bool trained;  // a parameter; else a buffer
  Tensor* member;
  Tensor kept;
  Tensor& tensor() { return member != nullptr ? *member : kept; }
};

class Parameter : public Tensor {
 public:
  // Undefined and in no module, until it is assigned register_parameter(…).
  Parameter() = default;
  Parameter(std::shared_ptr<Registration> registration) noexcept { bind(std::move(registration)); }
  Parameter& operator=(std::shared_ptr<Registration> registration) noexcept;
  Parameter(Parameter&& other) noexcept;                // the module's list follows
  Parameter(const Parameter& other) : Tensor(other) {}  // a handle of the tensor, in no list
  ~Parameter() { release(); }

  // Replaces the module's tensor. An undefined value leaves the name without a tensor. A parameter
  // is trained unless the value was frozen before by set_requires_grad(false). Existing optimizers
  // and wrappers keep the old tensor. Throws Error if this Parameter belongs to no module, or if
  // the value was computed from others (detach() it). Throws DTypeError if a parameter's dtype has
  // no gradients.
  Parameter& operator=(const Tensor& value);
  Parameter& operator=(const Parameter& value) { return *this = static_cast<const Tensor&>(value); }

 private:
  void bind(std::shared_ptr<Registration> registration) noexcept;
  void release() noexcept;

  std::shared_ptr<Registration> registration_;
};

// A tensor that a module saves and moves but does not train, from register_buffer().
using Buffer = Parameter;

}  // namespace ringgrad::nn
