// The engine: walks the tape newest first, sums the gradients that meet at a node, and frees saved tensors as it goes.
//
// One pass: count how many gradients each reachable node will receive; then, from the root, run every node whose
// gradients are complete. Among the ready nodes of a device the newest runs first, and leaves before all others, so a
// leaf's hook fires the moment its gradient is complete (that is what lets communication overlap with the rest of
// backward). Each device of the graph has one thread: the caller's for the root's device, workers for the others, so
// the replicas of DataParallel run in parallel. Everything is iterative: graphs may be a million nodes deep.
#include "ringgrad/autograd/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// Note [Who owns a gradient]
// A closure may return the same array for several inputs (add returns dy twice), a view of what it received, or
// something a user still holds. So a gradient may be written to only when it is solely owned; else a sum goes into
// fresh memory. Summing in place into a shared array would corrupt the other receiver's gradient without a trace.
// The same goes for an array in which elements share a place: the gradient of sum is dy seen with stride 0.
bool may_overwrite(const Tensor& g) { return g.is_sole_owner() && g.flat_numel() > 0; }

Tensor sum_of(Tensor a, Tensor b) {
  // One consumer used a channel-blocked layout, the other a strided one.
  if (a.is_channel_blocked() != b.is_channel_blocked()) {
    Tensor converted = empty(a.shape(), a.options());
    kernels::copy(converted, b);
    b = std::move(converted);
  }
  if (!may_overwrite(a) && may_overwrite(b)) std::swap(a, b);
  Tensor sum = may_overwrite(a) ? a : empty_like(a);
  kernels::add(sum, a, b);
  return sum;
}

struct OlderFirst {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->sequence < b->sequence;
  }
};

class BackwardPass {
 public:
  void run(const Edge& root, Tensor grad);
  void add_final_callback(std::function<void()> callback);

 private:
  // The ready nodes of one device: a heap with the newest on top.
  struct Queue {
    Device device;
    std::vector<std::shared_ptr<Node>> heap;
    std::condition_variable not_empty;
  };

  void count_dependencies(const std::shared_ptr<Node>& root);
  Queue& queue_of(Device device);
  void work(Queue& queue);
  Gradients run_node(Node& node);
  void deliver(const Edge& edge, Tensor grad);

  // Everything below is guarded by the mutex, as is Node::progress of the pass's nodes. It is never held while a
  // kernel runs.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Queue>> queues_;
  int64_t unfinished_ = 0;  // nodes that have not run yet
  std::exception_ptr error_;
  std::vector<std::function<void()>> final_callbacks_;
  uint64_t id_ = 0;
};

constinit thread_local BackwardPass* current_pass = nullptr;

Device device_of(const Node& node) { return node.outputs[0].device; }

BackwardPass::Queue& BackwardPass::queue_of(Device device) {
  for (auto& queue : queues_)
    if (queue->device == device) return *queue;
  queues_.push_back(std::make_unique<Queue>());
  queues_.back()->device = device;
  return *queues_.back();
}

void BackwardPass::count_dependencies(const std::shared_ptr<Node>& root) {
  static std::atomic<uint64_t> passes{0};
  id_ = ++passes;
  std::vector<Node*> stack{root.get()};
  root->progress = {id_, 0, {}};
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    ++unfinished_;
    queue_of(device_of(*node));
    for (const Edge& edge : node->next) {
      if (!edge.node) continue;
      auto& progress = edge.node->progress;
      if (progress.pass != id_) {
        progress = {id_, 0, {}};
        stack.push_back(edge.node.get());
      }
      ++progress.dependencies;
    }
  }
}

void BackwardPass::run(const Edge& root, Tensor grad) {
  count_dependencies(root.node);
  root.node->progress.dependencies = 1;
  deliver(root, std::move(grad));

  Queue& own = queue_of(device_of(*root.node));
  std::vector<std::thread> workers;
  try {
    for (auto& queue : queues_)
      if (queue.get() != &own) workers.emplace_back([this, &queue] { work(*queue); });
  } catch (...) {  // the system has no more threads: those that have started end at once
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    for (auto& queue : queues_) queue->not_empty.notify_one();
  }
  work(own);
  for (auto& worker : workers) worker.join();

  if (error_) std::rethrow_exception(error_);
  for (auto& callback : final_callbacks_) callback();
}

void BackwardPass::work(Queue& queue) {
  current_pass = this;
  NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  for (;;) {
    queue.not_empty.wait(lock, [&] { return !queue.heap.empty() || unfinished_ == 0 || error_; });
    if (error_ || queue.heap.empty()) break;
    std::pop_heap(queue.heap.begin(), queue.heap.end(), OlderFirst{});
    const std::shared_ptr<Node> node = std::move(queue.heap.back());
    queue.heap.pop_back();
    lock.unlock();
    try {
      Gradients grads = run_node(*node);
      for (size_t i = 0; i < node->next.size(); ++i)
        if (node->next[i].node) deliver(node->next[i], grads.empty() ? Tensor() : std::move(grads[i]));
      lock.lock();
      --unfinished_;
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!error_) error_ = std::current_exception();
    }
    if (unfinished_ == 0 || error_)
      for (auto& other : queues_) other->not_empty.notify_one();
  }
  current_pass = nullptr;
}

// Runs the closure and checks what it returns. Empty where no gradient reached the node.
Gradients BackwardPass::run_node(Node& node) {
  const std::vector<Tensor> grad_outputs = std::move(node.progress.grad_outputs);
  if (std::none_of(grad_outputs.begin(), grad_outputs.end(), [](const Tensor& g) { return g.defined(); })) return {};
  OpScope scope(node.name);
  CHECK(node.backward != nullptr, "backward: the graph of ", node.name,
        " was freed by an earlier backward(), expected one that no backward has used; compute the loss again, or add "
        "the losses and call backward once");
  Gradients grads = node.backward(grad_outputs);
  if (node.next.empty()) return {};  // a leaf: its closure stays, for the next graph
  node.backward = nullptr;           // frees the saved tensors now

  CHECK(grads.size() == node.next.size(), "backward of ", node.name, ": returned ", grads.size(),
        " gradients, expected one for each of the ", node.next.size(), " inputs");
  for (size_t i = 0; i < grads.size(); ++i) {
    const Edge& edge = node.next[i];
    if (!edge.node || !grads[i]) continue;
    const OutputInfo& input = edge.node->outputs[edge.output];
    CHECK_AS(ShapeError, grads[i].shape() == input.shape, "backward of ", node.name, ": the gradient of input ", i,
             " has shape ", grads[i].shape(), ", expected ", input.shape);
    CHECK_AS(DTypeError, grads[i].dtype() == input.dtype, "backward of ", node.name, ": the gradient of input ", i,
             " has dtype ", grads[i].dtype(), ", expected ", input.dtype);
    CHECK_AS(DeviceError, grads[i].device() == input.device, "backward of ", node.name, ": the gradient of input ", i,
             " is on ", grads[i].device(), ", expected ", input.device);
  }
  return grads;
}

// Adds `grad` (undefined: nothing) to what the edge's node has received; queues the node when that was the last.
void BackwardPass::deliver(const Edge& edge, Tensor grad) {
  Node& node = *edge.node;
  std::unique_lock lock(mutex_);
  auto& received = node.progress.grad_outputs;
  if (received.empty()) received.resize(node.outputs.size());
  while (grad) {  // sum outside the lock; somebody else may have delivered meanwhile
    Tensor other = std::move(received[edge.output]);
    if (!other) {
      received[edge.output] = std::move(grad);
      break;
    }
    received[edge.output] = Tensor();
    lock.unlock();
    grad = sum_of(std::move(other), std::move(grad));
    lock.lock();
  }
  if (--node.progress.dependencies > 0) return;
  Queue& queue = queue_of(device_of(node));
  queue.heap.push_back(edge.node);
  std::push_heap(queue.heap.begin(), queue.heap.end(), OlderFirst{});
  queue.not_empty.notify_one();
}

void BackwardPass::add_final_callback(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  final_callbacks_.push_back(std::move(callback));
}

}  // namespace

void queue_final_callback(std::function<void()> callback) {
  CHECK(current_pass != nullptr, "queue_final_callback: no backward pass is running on this thread");
  current_pass->add_final_callback(std::move(callback));
}

void Tensor::backward(const Tensor& grad_output) const {
  CHECK(current_pass == nullptr, "backward: called inside a backward pass; hooks cannot start another one");
  CHECK(defined() && requires_grad(),
        "backward: the tensor does not depend on any leaf that requires grad; mark one with set_requires_grad()");
  Tensor grad = grad_output;
  if (!grad) {
    CHECK_AS(ShapeError, numel() == 1, "backward: the tensor has shape ", shape(),
             ", expected one element (a loss); pass the gradient of the loss with respect to it otherwise");
    grad = ones_like(*this);
  }
  CHECK_AS(ShapeError, grad.shape() == shape(), "backward: the gradient has shape ", grad.shape(), ", the tensor ",
           shape(), ", expected equal shapes");
  CHECK_AS(DTypeError, grad.dtype() == dtype(), "backward: the gradient has dtype ", grad.dtype(), ", the tensor ",
           dtype(), ", expected equal dtypes");
  CHECK_AS(DeviceError, grad.device() == device(), "backward: the gradient is on ", grad.device(), ", the tensor on ",
           device(), ", expected one device; move with to(x, device)");
  BackwardPass().run(gradient_edge(*this), std::move(grad));
}

}  // namespace ringgrad
