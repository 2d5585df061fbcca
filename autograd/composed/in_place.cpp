// x += y and similar operators compute the new value as x + y does. If no gradient is tracked, it
// is copied into x's elements, which all views share. Otherwise x's handles name the result, with
// its history, from now on. The effect is the same as long as nothing else sees the elements.
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

void check_leaf(const char* name, const Tensor& x) {
  CHECK(
      !grad_enabled() || !x.is_leaf() || !x.requires_grad(), name, ": the tensor of shape ",
      x.shape(),
      " is a leaf that requires a gradient, which would be lost; write to it under a NoGradGuard");
}

// Gives x the history of y. Properties of the tensor itself stay: the gradient that it holds, and
// whether it retains gradients of its new value. Hooks stay with the value for which they were
// registered.
void take_place_of(const Tensor& x, const Tensor& y) {
  const Tensor grad = x.grad();
  const bool retains = stop_retaining_grad(x);
  x.set_autograd_meta(y.autograd_meta());
  if (grad) x.set_grad(grad);
  if (retains) x.retain_grad();
}

template <class Compute>
const Tensor& assign(const char* name, const Tensor& x, const Compute& compute) {
  OpScope scope(name);
  check_defined(name, x);
  const bool seen_by_others = x.storage().use_count() > 1 || x.storage()->twins.use_count() > 1;
  const Tensor y = compute();
  CHECK_AS(ShapeError, y.shape() == x.shape(), name, ": the tensor has shape ", x.shape(),
           ", the result ", y.shape(), ", expected equal shapes");
  check_same_kind(name, x, y);
  check_leaf(name, x);
  if (!y.requires_grad()) {
    ringgrad::copy_(x, y);
    return x;
  }
  CHECK(!seen_by_others, name, ": the elements of the tensor of shape ", x.shape(),
        " are seen by others, too (it is a view, has one, or was saved for backward), whose "
        "gradients would be wrong; make a new tensor: x = x + y, or stack() or cat() of the parts");
  x.set_data(y);
  take_place_of(x, y);
  return x;
}

}  // namespace

const Tensor& Tensor::operator+=(const Tensor& other) const {
  return assign("add_", *this, [&] { return *this + other; });
}
const Tensor& Tensor::operator-=(const Tensor& other) const {
  return assign("sub_", *this, [&] { return *this - other; });
}
const Tensor& Tensor::operator*=(const Tensor& other) const {
  return assign("mul_", *this, [&] { return *this * other; });
}
const Tensor& Tensor::operator/=(const Tensor& other) const {
  return assign("div_", *this, [&] { return *this / other; });
}
const Tensor& Tensor::operator+=(Scalar c) const {
  return assign("add_", *this, [&] { return *this + c; });
}
const Tensor& Tensor::operator-=(Scalar c) const {
  return assign("sub_", *this, [&] { return *this - c; });
}
const Tensor& Tensor::operator*=(Scalar c) const {
  return assign("mul_", *this, [&] { return *this * c; });
}
const Tensor& Tensor::operator/=(Scalar c) const {
  return assign("div_", *this, [&] { return *this / c; });
}
const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  return *this += alpha.to<double>() == 1 ? other : other * alpha;
}
const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  return *this -= alpha.to<double>() == 1 ? other : other * alpha;
}
const Tensor& Tensor::add_(Scalar c) const { return *this += c; }
const Tensor& Tensor::sub_(Scalar c) const { return *this -= c; }
const Tensor& Tensor::mul_(const Tensor& other) const { return *this *= other; }
const Tensor& Tensor::mul_(Scalar c) const { return *this *= c; }
const Tensor& Tensor::div_(const Tensor& other) const { return *this /= other; }
const Tensor& Tensor::div_(Scalar c) const { return *this /= c; }
const Tensor& Tensor::pow_(Scalar exponent) const {
  return assign("pow_", *this, [&] { return pow(exponent); });
}
#define IN_PLACE(NAME)                                       \
  const Tensor& Tensor::NAME##_() const {                    \
    return assign(#NAME "_", *this, [&] { return NAME(); }); \
  }
IN_PLACE(abs)
IN_PLACE(neg)
IN_PLACE(exp)
IN_PLACE(log)
IN_PLACE(log1p)
IN_PLACE(sqrt)
IN_PLACE(square)
IN_PLACE(sin)
IN_PLACE(cos)
IN_PLACE(relu)
IN_PLACE(sigmoid)
IN_PLACE(tanh)
IN_PLACE(floor)
IN_PLACE(ceil)
IN_PLACE(round)
IN_PLACE(trunc)
IN_PLACE(sign)
#undef IN_PLACE
const Tensor& Tensor::clamp_(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return assign("clamp_", *this, [&] { return clamp(low, high); });
}
const Tensor& Tensor::clamp_min_(Scalar low) const { return clamp_(low); }
const Tensor& Tensor::clamp_max_(Scalar high) const { return clamp_(std::nullopt, high); }
const Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  return assign("masked_fill_", *this, [&] { return masked_fill(mask, value); });
}
const Tensor& Tensor::index_put_(const std::vector<Index>& at, const Tensor& values,
                                 Flag accumulate) const {
  return assign("index_put_", *this, [&] { return index_put(*this, at, values, accumulate); });
}
const Tensor& Tensor::index_put_(const std::vector<Index>& at, Scalar value) const {
  return index_put_(at, scalar_like(*this, value));
}
const Tensor& Tensor::copy_(const Tensor& values) const {
  return assign("copy_", *this, [&] {
    return ringgrad::to(ringgrad::to(ringgrad::clone(ringgrad::expand(values, shape())), dtype()),
                        device());
  });
}
const Tensor& Tensor::fill_(Scalar value) const {
  check_defined("fill_", *this);
  check_leaf("fill_", *this);
  ringgrad::fill_(*this, value);
  return *this;
}
const Tensor& Tensor::zero_() const { return fill_(0); }
const Tensor& Tensor::uniform_(Real low, Real high) const {
  check_defined("uniform_", *this);
  check_leaf("uniform_", *this);
  ringgrad::uniform_(*this, low, high);
  return *this;
}
const Tensor& Tensor::normal_(Real mean, Real std) const {
  check_defined("normal_", *this);
  check_leaf("normal_", *this);
  ringgrad::normal_(*this, mean, std);
  return *this;
}

// An element picked by a mask or by numbers is a copy. A value assigned to it would be lost
// silently.
static void check_lasting(const Tensor& part) {
  CHECK(!part.is_sole_owner() || part.storage()->twins,
        "operator=: the value goes to a copy of shape ", part.shape(),
        " that nobody sees, expected a part of a tensor, "
        "by places and slices; write x.index_put_({…}, values)");
}
void Tensor::operator=(const Tensor& values) && {
  check_lasting(*this);
  copy_(values);
}
void Tensor::operator=(Scalar value) && {
  check_lasting(*this);
  fill_(value);
}

}  // namespace ringgrad
