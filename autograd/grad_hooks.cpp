#include "ringgrad/autograd/grad_hooks.h"

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

Tensor GradHooks::run(Tensor grad) const {
  if (hooks.empty()) return grad;
  const auto registered = hooks;  // one may remove itself
  for (const auto& [id, hook] : registered) {
    const Tensor replaced = hook(grad);
    if (!replaced) continue;
    CHECK(replaced.shape() == grad.shape() && replaced.dtype() == grad.dtype() && replaced.device() == grad.device(),
          "register_hook: a hook returned a gradient of shape ", replaced.shape(), ", ", replaced.dtype(), ", on ",
          replaced.device(), ", expected ", grad.shape(), ", ", grad.dtype(), ", on ", grad.device());
    grad = replaced;
  }
  return grad;
}

void GradHookHandle::remove() {
  if (const auto hooks = hooks_.lock()) hooks->hooks.erase(id_);
}

GradHookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  CHECK(requires_grad(), "register_hook: the tensor of shape ", shape(), " gets no gradient; mark it, or what it is ",
        "computed from, with requires_grad_()");
  AutogradMeta& meta = ringgrad::autograd_meta(*this);
  if (!meta.grad_hooks) {
    meta.grad_hooks = std::make_shared<GradHooks>();
    if (meta.grad_fn) meta.grad_fn->grad_hooks.emplace_back(meta.output, meta.grad_hooks);
  }
  const int id = meta.grad_hooks->next++;
  meta.grad_hooks->hooks.emplace(id, std::move(hook));
  return {meta.grad_hooks, id};
}

const Tensor& Tensor::retain_grad() const {
  if (is_leaf()) return *this;
  // A weak reference: the node keeps the hook, and the tensor the node.
  register_hook([meta = std::weak_ptr(autograd_meta())](const Tensor& grad) {
    if (const auto kept = meta.lock()) {
      const Tensor own = copy_of(grad, {grad.dtype(), grad.device()});
      if (kept->grad) kernels::add(own, own, kept->grad);
      kept->grad = own;
    }
    return Tensor();
  });
  return *this;
}

}  // namespace ringgrad
