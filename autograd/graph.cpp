#include "ringgrad/autograd/graph.h"

#include <atomic>
#include <mutex>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

namespace {

std::mutex accumulators_mutex;  // operations on several threads may use one leaf
BEFORE_MAIN(accumulators, hold_over_fork(accumulators_mutex));

// Releases a node, and then the nodes that die with it. It uses no recursion, because graphs are
// deep, and no memory for a list, because there may be none left. The list consists of the dying
// nodes themselves: the last edge of each one leads to the previous one. If two edges lead to one
// node, only releasing the second frees it. A node's closure releases no further nodes, because
// closures hold saved tensors, which own no nodes.
void release(std::shared_ptr<Node> node) {
  std::shared_ptr<Node> dying;
  for (;;) {
    if (node && node.use_count() == 1 && !node->next.empty()) {
      std::swap(node->next.back().node, dying);  // its last child comes next
      std::swap(node, dying);
      continue;
    }
    node.reset();
    if (!dying) return;
    std::shared_ptr<Node> before = std::move(dying->next.back().node);
    dying->next.pop_back();
    if (dying->next.empty())
      dying = std::move(before);
    else
      node = std::exchange(dying->next.back().node, std::move(before));
  }
}

}  // namespace

Node::~Node() {
  for (Edge& edge : next) release(std::move(edge.node));
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

AutogradMeta& autograd_meta(const Tensor& tensor) {
  if (!tensor.autograd_meta()) tensor.set_autograd_meta(std::make_shared<AutogradMeta>());
  return *tensor.autograd_meta();
}

Edge gradient_edge(const Tensor& tensor) {
  const auto& meta = tensor.autograd_meta();
  if (!meta) return {};
  if (meta->grad_fn) return {meta->grad_fn, meta->output};
  if (!meta->requires_grad) return {};
  std::lock_guard lock(accumulators_mutex);
  auto node = meta->accumulator.lock();
  const auto fits = [&](const OutputInfo& output) {  // or the leaf was converted or moved since
    return output.dtype == tensor.dtype() && output.device == tensor.device();
  };
  if (!node || !fits(node->outputs[0])) {
    node = make_accumulate_grad(tensor);
    meta->accumulator = node;
  }
  return {node, 0};
}

bool Tensor::requires_grad() const {
  const auto& meta = autograd_meta();
  return meta && (meta->requires_grad || meta->grad_fn);
}

bool Tensor::is_leaf() const { return !autograd_meta() || !autograd_meta()->grad_fn; }

const Tensor& Tensor::set_requires_grad(Flag value) const {
  CHECK(is_leaf(), "set_requires_grad: the tensor was computed by ", autograd_meta()->grad_fn->name,
        ", only leaves can be marked; detach() gives a leaf");
  CHECK_AS(DTypeError, !value || is_floating(dtype()), "set_requires_grad: dtype ", dtype(),
           " has no gradients, expected a floating dtype");
  ringgrad::autograd_meta(*this).requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const { return autograd_meta() ? autograd_meta()->grad : Tensor(); }

void check_gradient(const Tensor& gradient, const OutputInfo& tensor, const char* operation,
                    int input) {
  const auto whose = [&] {
    return input < 0 ? str(operation, ": the gradient")
                     : str("backward of ", operation, ": the gradient of input ", input);
  };
  CHECK_AS(ShapeError, gradient.shape() == tensor.shape, whose(), " has shape ", gradient.shape(),
           ", expected ", tensor.shape);
  CHECK_AS(DTypeError, gradient.dtype() == tensor.dtype, whose(), " has dtype ", gradient.dtype(),
           ", expected ", tensor.dtype);
  CHECK_AS(DeviceError, gradient.device() == tensor.device, whose(), " is on ", gradient.device(),
           ", expected ", tensor.device, "; to(x, device) moves it");
}

void Tensor::set_grad(const Tensor& grad) const {
  if (grad) check_gradient(grad, info_of(*this), "set_grad");
  // Other gradients will be added to this one in place, so it is an array of its own.
  Tensor own = grad && !grad.is_leaf() ? grad.detach() : grad;
  if (own && (own.is_channel_blocked() || has_internal_overlap(own))) own = as_contiguous(own);
  AutogradMeta& meta = ringgrad::autograd_meta(*this);
  meta.grad = own;
  meta.zeros = nullptr;
}

}  // namespace ringgrad
