#include "ringgrad/autograd/grad_hooks.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Tensor GradHooks::run(Tensor grad) const {
  if (hooks.empty()) return grad;
  const auto registered = hooks;  // a copy, because a hook may remove itself
  for (const auto& [id, hook] : registered) {
    const Tensor replaced = hook(grad);
    if (!replaced) continue;
    CHECK(replaced.shape() == grad.shape() && replaced.dtype() == grad.dtype() &&
              replaced.device() == grad.device(),
          "register_hook: a hook returned a gradient of shape ", replaced.shape(), ", ",
          replaced.dtype(), ", on ", replaced.device(), ", expected ", grad.shape(), ", ",
          grad.dtype(), ", on ", grad.device());
    grad = replaced;
  }
  return grad;
}

}  // namespace ringgrad
