#include "ringgrad/autograd/accumulate_grad.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/twice.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {
namespace {

// Adds g to leaf.grad. The first gradient becomes the leaf's own without a copy, if no one else can
// see it; see Note [Who owns a gradient] in engine.cpp.
void accumulate(const Tensor& leaf, const Tensor& g) {
  AutogradMeta& meta = *leaf.autograd_meta();
  // The leaf may have been converted or moved since the graph was made; the gradient follows it.
  const bool fits =
      g.dtype() == leaf.dtype() && g.device() == leaf.device() && !g.is_channel_blocked();
  if (!meta.grad && fits && g.is_sole_owner() && g.is_contiguous()) {
    meta.grad = g;
    return;
  }
  // A tensor with a history is never written to.
  if ((grad_enabled() && g.requires_grad()) || (meta.grad && !meta.grad.is_leaf())) {
    meta.zeros = nullptr;
    meta.grad = twice->sum(meta.grad, g);
    return;
  }
  const Tensor like_leaf = meta.grad && fits ? g : copy_of(g, {leaf.dtype(), leaf.device()});
  if (!meta.grad)
    meta.grad = like_leaf;
  else if (begin_adding(leaf))
    kernels::copy(meta.grad, like_leaf);
  else
    kernels::add(meta.grad, meta.grad, like_leaf);
}

// Runs the hooks that are registered now. A hook may remove any hook, including itself; a removed
// hook does not run.
void run_hooks(const Tensor& leaf) {
  const auto meta = leaf.autograd_meta();
  auto& hooks = meta->post_accumulate_hooks;
  const int end = meta->next_hook;
  for (auto next = hooks.begin(); next != hooks.end() && next->first < end;) {
    const auto [id, hook] = *next;
    hook(leaf);
    next = hooks.upper_bound(id);
  }
}

}  // namespace

std::shared_ptr<Node> make_accumulate_grad(const Tensor& leaf) {
  auto node = std::make_shared<Node>("AccumulateGrad", kLeafSequence);
  node->outputs.push_back(info_of(leaf));
  auto& grad_hooks = leaf.autograd_meta()->grad_hooks;
  if (!grad_hooks) grad_hooks = std::make_shared<GradHooks>();
  node->grad_hooks.emplace_back(0, grad_hooks);
  // The closure keeps the leaf alive. The leaf refers to this node only weakly, so there is no
  // cycle.
  node->backward = [leaf](std::span<const Tensor> grads) -> Gradients {
    if (!leaf.requires_grad()) return {};  // it was frozen after the graph was made
    if (!arrived_at_home(leaf, grads[0])) accumulate(leaf, grads[0]);
    run_hooks(leaf);
    return {};
  };
  return node;
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor&)> hook) {
  CHECK(leaf.defined(),
        "register_post_accumulate_grad_hook: the tensor is undefined, expected a leaf");
  CHECK(leaf.is_leaf() && leaf.requires_grad(),
        "register_post_accumulate_grad_hook: the tensor of shape ", leaf.shape(),
        " is not a leaf that requires grad, so no gradient is accumulated in it");
  AutogradMeta& meta = *leaf.autograd_meta();
  const int id = meta.next_hook++;
  meta.post_accumulate_hooks.emplace(id, std::move(hook));
  return HookHandle([meta = std::weak_ptr(leaf.autograd_meta()), id] {
    if (const auto alive = meta.lock()) alive->post_accumulate_hooks.erase(id);
  });
}

}  // namespace ringgrad
