#include "ringgrad/nn/parameter.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {

void Parameter::bind(std::shared_ptr<Registration> registration) noexcept {
  if (!registration) return;
  Tensor::operator=(registration->tensor());
  registration_ = std::move(registration);
  registration_->member = this;
}

void Parameter::release() noexcept {
  if (registration_ && registration_->member == this) {
    registration_->kept = *this;
    registration_->member = nullptr;
  }
  registration_.reset();
}

Parameter::Parameter(Parameter&& other) noexcept : Tensor(other) {
  bind(std::move(other.registration_));
}

Parameter& Parameter::operator=(std::shared_ptr<Registration> registration) noexcept {
  release();
  bind(std::move(registration));
  return *this;
}

Parameter& Parameter::operator=(const Tensor& value) {
  CHECK(registration_,
        "nn::Parameter: it belongs to no module, so nothing would train or save the tensor; ",
        "expected p = register_parameter(name, value) before");
  if (value.defined() && registration_->trained) {
    CHECK(value.is_leaf(), "module: '", registration_->name, "' would be a tensor of shape ",
          value.shape(), " that was computed from others, expected a leaf; detach() gives one");
    // A tensor that was marked before, such as a frozen one that is now shared, stays as it is.
    if (!value.autograd_meta()) value.set_requires_grad();
  }
  Tensor::operator=(value);
  return *this;
}

}  // namespace ringgrad::nn
