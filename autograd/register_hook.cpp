// Hooks that users register on gradients, and the one that retains a gradient.
#include <climits>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/twice.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {

// The retaining hook runs last, whenever the others were registered, because it must see their
// result. A fixed key makes it a single hook, however often retain_grad() is called.
static constexpr int kRetains = INT_MAX;

static const std::shared_ptr<GradHooks>& hooks_of(const char* operation, const Tensor& tensor) {
  CHECK(tensor.requires_grad(), operation, ": the tensor of shape ", tensor.shape(),
        " gets no gradient; mark it, or ", "what it is computed from, with requires_grad_()");
  AutogradMeta& meta = ringgrad::autograd_meta(tensor);
  if (!meta.grad_hooks) {
    meta.grad_hooks = std::make_shared<GradHooks>();
    if (meta.grad_fn) meta.grad_fn->grad_hooks.emplace_back(meta.output, meta.grad_hooks);
  }
  return meta.grad_hooks;
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  const std::shared_ptr<GradHooks>& hooks = hooks_of("register_hook", *this);
  const int id = hooks->next++;
  hooks->hooks.emplace(id, std::move(hook));
  return HookHandle([hooks = std::weak_ptr(hooks), id] {
    if (const auto alive = hooks.lock()) alive->hooks.erase(id);
  });
}

bool stop_retaining_grad(const Tensor& tensor) {
  const auto& meta = tensor.autograd_meta();
  return meta && meta->grad_hooks && meta->grad_hooks->hooks.erase(kRetains) > 0;
}

const Tensor& Tensor::retain_grad() const {
  const std::shared_ptr<GradHooks>& hooks = hooks_of("retain_grad", *this);
  if (is_leaf()) return *this;
  // The reference is weak: the node keeps the hook, and the tensor keeps the node.
  hooks->hooks.emplace(kRetains, [meta = std::weak_ptr(autograd_meta())](const Tensor& grad) {
    if (const auto kept = meta.lock()) {
      if (grad_enabled()) {  // with its history
        kept->grad = twice->sum(kept->grad, grad);
        return Tensor();
      }
      const Tensor own = copy_of(grad, {grad.dtype(), grad.device()});
      if (kept->grad) kernels::add(own, own, kept->grad);
      kept->grad = own;
    }
    return Tensor();
  });
  return *this;
}

}  // namespace ringgrad
