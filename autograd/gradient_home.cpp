#include "ringgrad/autograd/gradient_home.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

namespace ringgrad {
namespace {

// Two numbers that only grow, so their sum is the same only if both are.
uint32_t writes_to(const Tensor& grad) { return grad.storage()->version() + captured_runs; }

bool holds_zeros(const AutogradMeta& leaf) {
  return leaf.zeros && leaf.grad && *leaf.zeros == writes_to(leaf.grad);
}

// Counts a write without losing "known to be zeros" for the neighbours in the arena, which share
// the note.
void write_among_zeros(AutogradMeta& leaf) {
  leaf.grad.storage()->bump_version();
  if (leaf.zeros) ++*leaf.zeros;  // a hook may have called set_grad()
}

}  // namespace

GradientHome::GradientHome(const Tensor& input) {
  if (!input || !input.is_leaf() || !input.requires_grad()) return;
  leaf_ = input.autograd_meta();
  options_ = input.options();
}

Tensor GradientHome::claim() const {
  const auto leaf = leaf_.lock();
  if (!leaf || !leaf->requires_grad || leaf->claimed || !holds_zeros(*leaf) ||
      !pass_accumulates() || !leaf->grad.is_contiguous() || leaf->grad.options() != options_ ||
      (leaf->grad_hooks && !leaf->grad_hooks->hooks.empty()))
    return {};
  write_among_zeros(*leaf);
  note_claim(leaf);
  return leaf->claimed = leaf->grad;
}

Tensor GradientHome::claim_or_empty(const Tensor& like) const {
  const Tensor home = claim();
  return home ? home : empty_like(like);
}

void zeros_known(const std::vector<Tensor>& leaves) {
  if (leaves.empty()) return;
  const auto note = std::make_shared<uint32_t>(writes_to(leaves[0].grad()));
  for (const Tensor& leaf : leaves) autograd_meta(leaf).zeros = note;
}

void give_back(AutogradMeta& leaf) {
  if (!std::exchange(leaf.claimed, Tensor()) || !holds_zeros(leaf)) return;
  write_among_zeros(leaf);
  kernels::fill(leaf.grad, 0);
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
