// Parameter: a tensor that its module knows by name. It is a member of the module, and a Tensor
// like any other; what the module lists is the member itself, so that assigning to it replaces the
// module's tensor:
//
//   // A member; in a constructor's body as well.
//   nn::Parameter scale = register_parameter("scale", ones({n}));
//   decoder.weight = embedding.weight;  // tied: both modules now train one tensor
//
// What register_parameter() gives becomes a Parameter only, and no Tensor: that would be another
// handle, and assigning to it would go unnoticed.
#pragma once

#include <memory>
#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad::nn {

// A name in a module's list, and the tensor behind it: the member, or what the last member held.
struct Registration {
  std::string name;
  bool trained;  // a parameter; else a buffer
  Tensor* member;
  Tensor kept;
  Tensor& tensor() { return member != nullptr ? *member : kept; }
};

class Parameter : public Tensor {
 public:
  // Undefined, and of no module: to be given one by = register_parameter(…).
  Parameter() = default;
  Parameter(std::shared_ptr<Registration> registration) noexcept { bind(std::move(registration)); }
  Parameter& operator=(std::shared_ptr<Registration> registration) noexcept;
  Parameter(Parameter&& other) noexcept;                // the module's list follows
  Parameter(const Parameter& other) : Tensor(other) {}  // another handle of the tensor, in no list
  ~Parameter() { release(); }

  // Replaces the module's tensor; undefined: there is none under that name from now on. A parameter
  // trains what it is given unless that was frozen before, set_requires_grad(false). Optimizers and
  // wrappers that exist already keep the tensor that they have. Throws Error in a Parameter of no
  // module, or where the value was computed from others: detach() it; DTypeError for a parameter of
  // a dtype that has no gradients.
  Parameter& operator=(const Tensor& value);
  Parameter& operator=(const Parameter& value) { return *this = static_cast<const Tensor&>(value); }

 private:
  void bind(std::shared_ptr<Registration> registration) noexcept;
  void release() noexcept;

  std::shared_ptr<Registration> registration_;
};

// The same for what a module saves and moves, but does not train: from register_buffer().
using Buffer = Parameter;

}  // namespace ringgrad::nn
