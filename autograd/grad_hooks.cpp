#include "ringgrad/autograd/grad_hooks.h"

#include "ringgrad/autograd/graph.h"

namespace ringgrad {

Tensor GradHooks::run(Tensor grad) const {
  if (hooks.empty()) return grad;
  const auto registered = hooks;  // a copy, because a hook may remove itself
  for (const auto& [id, hook] : registered) {
    const Tensor replaced = hook(grad);
    if (!replaced) continue;
    check_gradient(replaced, info_of(grad), "a hook of register_hook");
    grad = replaced;
  }
  return grad;
}

}  // namespace ringgrad
