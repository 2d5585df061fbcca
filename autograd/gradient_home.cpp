#include "ringgrad/autograd/gradient_home.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {
namespace {

bool holds_zeros(const AutogradMeta& leaf) {
  return leaf.zeros && leaf.grad && *leaf.zeros == leaf.grad.storage()->version();
}

// Counts a write without losing "known to be zeros" for the neighbours in the arena, which share
// the note.
void write_among_zeros(AutogradMeta& leaf) {
  leaf.grad.storage()->bump_version();
  if (leaf.zeros) ++*leaf.zeros;  // a hook may have called set_grad()
}

}  // namespace

GradientHome::GradientHome(const Tensor& input) {
  if (input && input.is_leaf() && input.requires_grad()) leaf_ = input.autograd_meta();
}

Tensor GradientHome::claim() const {
  const auto leaf = leaf_.lock();
  if (!leaf || !leaf->requires_grad || leaf->claimed || !holds_zeros(*leaf) ||
      !pass_accumulates() || !leaf->grad.is_contiguous() ||
      (leaf->grad_hooks && !leaf->grad_hooks->hooks.empty()))
    return {};
  write_among_zeros(*leaf);
  return leaf->claimed = leaf->grad;
}

Tensor GradientHome::claim_or_empty(const Tensor& like) const {
  const Tensor home = claim();
  return home ? home : empty_like(like);
}

void zeros_known(const std::vector<Tensor>& leaves) {
  if (leaves.empty()) return;
  const auto note = std::make_shared<uint32_t>(leaves[0].grad().storage()->version());
  for (const Tensor& leaf : leaves) {
    AutogradMeta& meta = autograd_meta(leaf);
    meta.zeros = note;
    meta.claimed = Tensor();
  }
}

bool begin_adding(const Tensor& leaf) {
  AutogradMeta& meta = *leaf.autograd_meta();
  const bool known = holds_zeros(meta);
  begin_write("backward", meta.grad);
  if (known) ++*meta.zeros;
  meta.zeros = nullptr;
  return known;
}

bool arrived_at_home(const Tensor& leaf, const Tensor& gradient) {
  AutogradMeta& meta = *leaf.autograd_meta();
  const Tensor claimed = std::exchange(meta.claimed, Tensor());
  // set_grad() may have been called meanwhile.
  if (!claimed || !claimed.is_same(meta.grad)) return false;
  if (!gradient.is_same(claimed)) {
    write_among_zeros(meta);
    kernels::copy(meta.grad, gradient);
  }
  meta.zeros = nullptr;
  return true;
}

}  // namespace ringgrad
