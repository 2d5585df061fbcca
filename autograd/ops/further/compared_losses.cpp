// Losses that compare each number with its target.
#include "ringgrad/autograd/ops.h"

#include <cmath>
#include <functional>
#include <utility>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// scale Σ x², in one pass over x. Its gradient is 2 scale x.
Tensor sum_of_squares(const Tensor& x_, double scale) {
  const Tensor x = strided_contiguous(x_);
  const Tensor total = empty({}, {accumulator_dtype(x.dtype()), x.device()});
  kernels::sum_squares(total, x);
  kernels::affine(total, total, scale, 0);
  return differentiable("mse_loss", {x}, to(total, x.dtype()),
                        [x = save(x, 0), scale](const Tensor& dy) -> Gradients {
                          return {mul(x.get(), mul(dy, 2 * scale))};
                        });
}

// An input and its target, both of the same dtype and shape. 16-bit tensors are converted to
// float32, so that a loss and its gradients are rounded once.
struct Compared {
  Tensor x;
  Tensor target;
  DType result;  // the loss's dtype

  Compared(const char* operation, const Tensor& x_, const Tensor& target_)
      : x(autocast_loss(x_)), target(autocast_loss(target_)) {
    check_same_kind(operation, x, target);
    check_floating(operation, x);
    CHECK_AS(ShapeError, x.shape() == target.shape(), operation, ": the input has shape ",
             x.shape(), ", the target ", target.shape(), ", expected equal shapes");
    result = x.dtype();
    x = to(x, accumulator_dtype(result));
    target = to(target, accumulator_dtype(result));
  }

  Tensor reduce(const Tensor& losses, Reduction reduction) const {
    const Tensor y = reduction == Reduction::Mean  ? mean(losses)
                     : reduction == Reduction::Sum ? sum(losses)
                                                   : losses;
    return to(y, result);
  }
};

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  OpScope scope("mse_loss");
  const Compared of("mse_loss", x, target);
  const Tensor difference = sub(of.x, of.target);
  if (reduction == Reduction::None) return of.reduce(square(difference), reduction);
  const double count = static_cast<double>(difference.numel());
  return to(sum_of_squares(difference, reduction == Reduction::Mean ? 1 / count : 1), of.result);
}

namespace {

template <class... Numbers>
using TargetLoss = Kernel<void(const Tensor& y, const Tensor& x, const Tensor& t, Numbers...)>;
template <class... Numbers>
using TargetLossBackward =
    Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& t, Numbers...)>;

// The slopes of a loss, d(loss)/d(target) and d(loss)/dx, by operations.
struct Slopes {
  std::function<Tensor(const Tensor& x, const Tensor& target)> of_target;
  std::function<Tensor(const Tensor& x, const Tensor& target)> of_x;
};

template <class... Numbers>
Tensor with_target(const char* name, const TargetLoss<Numbers...>& forward,
                   const TargetLossBackward<Numbers...>& backward, const Tensor& x_,
                   const Tensor& target_, Reduction reduction, Slopes slopes, Numbers... numbers) {
  OpScope scope(name);
  const Compared of(name, x_, target_);
  const Tensor x = strided(of.x);
  const Tensor target = strided(of.target);
  Tensor losses = empty_like(x);
  forward(losses, x, target, numbers...);
  losses = differentiable(
      name, {x, target}, losses,
      [&backward, slopes = std::move(slopes), x = save(x, 0), target = save(target, 1),
       wants_x = wants_grad(x), wants_target = wants_grad(target),
       numbers...](const Tensor& dy_) -> Gradients {
        const Tensor dy = strided(dy_);
        Tensor dx;
        if (wants_x && grad_enabled()) {
          dx = mul(dy, slopes.of_x(x.get(), target.get()));
        } else if (wants_x) {
          dx = empty_like(x.get());
          backward(dx, dy, x.get(), target.get(), numbers...);
        }
        return {dx, wants_target ? mul(dy, slopes.of_target(x.get(), target.get())) : Tensor()};
      });
  return of.reduce(losses, reduction);
}

}  // namespace

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction) {
  return with_target("binary_cross_entropy_with_logits", kernels::bce_with_logits,
                     kernels::bce_with_logits_backward, x, target, reduction,
                     {.of_target = [](const Tensor& x, const Tensor&) { return neg(x); },
                      .of_x = [](const Tensor& x, const Tensor& t) { return sub(sigmoid(x), t); }});
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, Reduction reduction) {
  const char* const name = "binary_cross_entropy";
  for (const Tensor* t : {&x, &target}) {
    check_defined(name, *t);
    if (t->device().is_cpu())
      CHECK(all((*t >= 0) & (*t <= 1)).item<bool>(), name, ": the ", t == &x ? "input" : "target",
            " has elements that are not in [0, 1], expected probabilities; of logits take "
            "binary_cross_entropy_with_logits()");
  }
  return with_target(
      name, kernels::bce, kernels::bce_backward, x, target, reduction,
      {.of_target = [](const Tensor& x, const Tensor&) { return sub(log1p(neg(x)), log(x)); },
       .of_x =
           [](const Tensor& x, const Tensor& t) {
             return div(sub(x, t), clamp_min(mul(x, 1 - x), double{1e-12F}));
           }});
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const Compared of("l1_loss", x, target);
  return of.reduce(abs(sub(of.x, of.target)), reduction);
}

static Tensor huber_of(const char* name, const Tensor& x, const Tensor& target, Reduction reduction,
                       double delta, double scale) {
  const auto slope = [=](const Tensor& x, const Tensor& target) {
    return mul(clamp(sub(x, target), -delta, delta), 1 / scale);
  };
  return with_target(
      name, kernels::huber, kernels::huber_backward, x, target, reduction,
      {.of_target = [=](const Tensor& x, const Tensor& target) { return slope(target, x); },
       .of_x = slope},
      delta, scale);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, Real delta, Reduction reduction) {
  CHECK(delta > 0, "huber_loss: delta is ", delta, ", expected a number above 0");
  return huber_of("huber_loss", x, target, reduction, delta, 1);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Real beta, Reduction reduction) {
  CHECK(beta >= 0, "smooth_l1_loss: beta is ", beta, ", expected at least 0");
  if (beta == 0) return l1_loss(x, target, reduction);
  return huber_of("smooth_l1_loss", x, target, reduction, beta, beta);
}

Tensor kl_div(const Tensor& x_, const Tensor& target_, Reduction reduction, Flag log_target) {
  const Compared of("kl_div", x_, target_);
  const Tensor& x = of.x;
  const Tensor& target = of.target;
  if (log_target) return of.reduce(mul(exp(target), sub(target, x)), reduction);
  const Tensor positive = masked_fill(target, target == 0, 1);  // 0 log 0 = 0
  return of.reduce(mul(target, sub(log(positive), x)), reduction);
}

}  // namespace ringgrad
