// The engine: walks the tape newest first, sums the gradients that meet at a node, and frees saved
// tensors as it goes.
//
// A pass first counts how many gradients each reachable node will receive. Then, from the root, it
// runs every node whose gradients are complete. Among the ready nodes of a device the newest runs
// first, and leaves run before all others. So a leaf's hook fires the moment its gradient is
// complete, which lets communication overlap with the rest of backward. Each device of the graph
// has one thread: the caller's for the root's device, and workers for the others. So the replicas
// of DataParallel run in parallel. Everything is iterative, because graphs may be a million nodes
// deep.
#include "ringgrad/autograd/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "ringgrad/autograd/backward_pass.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/program_observer.h"

namespace ringgrad {
namespace {

// Note [Who owns a gradient]
// A closure may return the same array for several inputs (add returns dy twice), a view of what it
// received, or an array that a user still holds. So a gradient may be overwritten only if it is
// solely owned; otherwise a sum goes into fresh memory. Summing in place into a shared array would
// silently corrupt the other receiver's gradient. The same holds for an array in which elements
// share a place (its flat_numel() is 0): the gradient of sum is dy with stride 0.
bool may_overwrite(const Tensor& g) { return g.is_sole_owner() && g.flat_numel() > 0; }

// Note [Sums inside an operation]
// If an activation is used twice, like the input of a residual block, the gradient that arrives
// first waits. The operation that computes the second may take it and begin its sums with it
// (take_waiting_gradient). Then one tensor is read, instead of two read and one written, and 16-bit
// sums are rounded once. The operation only reads the waiting gradient, so others may hold it,
// too. Nodes run newest first, so the graph alone decides which gradient is waiting. With several
// devices timing would decide, so nothing is taken.

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
  explicit BackwardPass(BackwardRequest& request) : request_(request) {}
  void run(const Edge& root, Tensor grad);
  void add_final_callback(std::function<void()> callback);
  void note_claim(const std::shared_ptr<AutogradMeta>& leaf);
  bool accumulates() const { return request_.capture.empty(); }
  Tensor take_waiting(const Edge& edge, const Tensor& like);
  Node* completed_by(const Edge& edge);

 private:
  // The ready nodes of one device: a heap with the newest on top.
  struct Queue {
    Device device;
    std::vector<std::shared_ptr<Node>> heap;
    std::condition_variable not_empty;
  };

  Node::Progress& progress_of(Node& node);
  bool is_on_way(const Node* node) const {
    return accumulates() ? node != nullptr : request_.way.contains(node);
  }
  bool runs(const Node& node) const;
  void count_dependencies(const std::shared_ptr<Node>& root);
  Queue& queue_of(Device device);
  void work(Queue& queue);
  Gradients run_node(const std::shared_ptr<Node>& ready);
  void deliver(const Edge& edge, Tensor grad);

  // The mutex guards everything below and the progress of the pass's nodes. It is never held while
  // a kernel runs.
  BackwardRequest& request_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Queue>> queues_;
  int64_t unfinished_ = 0;  // nodes that have not run yet
  std::exception_ptr error_;
  std::vector<std::function<void()>> final_callbacks_;
  std::vector<std::shared_ptr<AutogradMeta>> claims_;
  uint64_t id_ = 0;
  std::unordered_map<const Node*, Node::Progress> leaves_;
};

constinit thread_local BackwardPass* current_pass = nullptr;
constinit thread_local const Node* current_node = nullptr;  // the node whose closure runs

Device device_of(const Node& node) { return node.outputs[0].device; }

BackwardPass::Queue& BackwardPass::queue_of(Device device) {
  for (auto& queue : queues_)
    if (queue->device == device) return *queue;
  queues_.push_back(std::make_unique<Queue>());
  queues_.back()->device = device;
  return *queues_.back();
}

// Leaves keep their progress in the pass, because several graphs may share a leaf and run at the
// same time.
Node::Progress& BackwardPass::progress_of(Node& node) {
  return node.sequence == kLeafSequence ? leaves_[&node] : node.progress;
}

// Returns true if the node's closure runs. It does not run if the node's gradient is only to be
// captured.
bool BackwardPass::runs(const Node& node) const {
  return accumulates() || std::ranges::any_of(node.next, [&](const Edge& edge) {
           return is_on_way(edge.node.get());
         });
}

void BackwardPass::count_dependencies(const std::shared_ptr<Node>& root) {
  static std::atomic<uint64_t> passes;
  id_ = ++passes;
  std::vector<Node*> stack{root.get()};
  progress_of(*root) = {id_, 0, {}};
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    ++unfinished_;
    queue_of(device_of(*node));
    for (const Edge& edge : node->next) {
      if (!is_on_way(edge.node.get())) continue;
      auto& progress = progress_of(*edge.node);
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
  progress_of(*root.node).dependencies = 1;
  deliver(root, std::move(grad));

  Queue& own = queue_of(device_of(*root.node));
  std::vector<std::thread> workers;
  try {
    for (auto& queue : queues_)
      if (queue.get() != &own) workers.emplace_back([this, &queue] { work(*queue); });
  } catch (...) {  // the system has no more threads; those that have started end at once
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    for (auto& queue : queues_) queue->not_empty.notify_one();
  }
  work(own);
  for (auto& worker : workers) worker.join();

  detail::pass_error = error_;
  for (const auto& leaf : claims_) give_back(*leaf);
  if (error_) std::rethrow_exception(error_);
  for (auto& callback : final_callbacks_) callback();
}

void BackwardPass::work(Queue& queue) {
  current_pass = this;
  GradModeGuard grad_mode(request_.graph != nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    queue.not_empty.wait(lock, [&] { return !queue.heap.empty() || unfinished_ == 0 || error_; });
    if (error_ || queue.heap.empty()) break;
    std::ranges::pop_heap(queue.heap, OlderFirst{});
    const std::shared_ptr<Node> node = std::move(queue.heap.back());
    queue.heap.pop_back();
    lock.unlock();
    try {
      Gradients grads = run_node(node);
      for (size_t i = 0; i < node->next.size(); ++i)
        if (is_on_way(node->next[i].node.get()))
          deliver(node->next[i], grads.empty() ? Tensor() : std::move(grads[i]));
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
  current_node = nullptr;
}

// Runs the closure and checks what it returns. Returns nothing if no gradient reached the node.
Gradients BackwardPass::run_node(const std::shared_ptr<Node>& ready) {
  Node& node = *ready;
  std::vector<Tensor> grad_outputs = std::move(progress_of(node).grad_outputs);
  for (const auto& [output, hooks] : std::vector(node.grad_hooks))  // a hook may register others
    if (grad_outputs.size() > static_cast<size_t>(output) && grad_outputs[output])
      grad_outputs[output] = hooks->run(std::move(grad_outputs[output]));
  for (size_t i = 0; i < request_.capture.size(); ++i)
    if (request_.capture[i].node.get() == &node && !grad_outputs.empty())
      request_.captured[i] = grad_outputs[request_.capture[i].output];
  if (!runs(node)) return {};
  if (std::ranges::none_of(grad_outputs, &Tensor::defined)) return {};
  OpScope scope(node.name);
  CHECK(node.backward != nullptr, "backward: the graph of ", node.name,
        " was freed by an earlier backward(), expected one that no backward has used; "
        "compute the loss again, add the losses and call backward once, "
        "or retain the graph: backward({}, true)");
  current_node = &node;
  Gradients grads =
      request_.graph ? request_.graph->run(ready, grad_outputs) : node.backward(grad_outputs);
  // The closure of a leaf stays for the next graph.
  if (node.next.empty()) return {};
  if (!request_.retain_graph) node.backward = nullptr;  // frees the saved tensors now

  CHECK(grads.size() == node.next.size(), "backward of ", node.name, ": returned ", grads.size(),
        " gradients, expected one for each of the ", node.next.size(), " inputs");
  for (size_t i = 0; i < grads.size(); ++i) {
    const Edge& edge = node.next[i];
    if (!edge.node || !grads[i]) continue;
    check_gradient(grads[i], edge.node->outputs[edge.output], node.name, static_cast<int>(i));
  }
  return grads;
}

// Adds `grad`, unless it is undefined, to the gradients that the edge's node has received. Queues
// the node if this was the last one.
void BackwardPass::deliver(const Edge& edge, Tensor grad) {
  Node& node = *edge.node;
  std::unique_lock lock(mutex_);
  auto& [pass, dependencies, received] = progress_of(node);
  if (received.empty()) received.resize(node.outputs.size());
  while (grad) {  // sum outside the lock; another thread may deliver meanwhile
    Tensor other = std::move(received[edge.output]);
    if (!other) {
      received[edge.output] = std::move(grad);
      break;
    }
    received[edge.output] = Tensor();
    lock.unlock();
    grad = request_.graph ? request_.graph->sum(other, grad)
                          : sum_of(std::move(other), std::move(grad));
    lock.lock();
  }
  if (--dependencies > 0) return;
  Queue& queue = queue_of(device_of(node));
  queue.heap.push_back(edge.node);
  std::ranges::push_heap(queue.heap, OlderFirst{});
  queue.not_empty.notify_one();
}

Tensor BackwardPass::take_waiting(const Edge& edge, const Tensor& like) {
  if (!is_on_way(edge.node.get()) || queues_.size() > 1) return {};
  std::lock_guard lock(mutex_);
  std::vector<Tensor>& received = progress_of(*edge.node).grad_outputs;
  if (received.empty() || !received[edge.output]) return {};
  const Tensor& waiting = received[edge.output];
  const bool alike = waiting.is_channel_blocked() == like.is_channel_blocked() &&
                     (like.is_channel_blocked() || waiting.strides() == like.strides());
  return alike ? std::exchange(received[edge.output], Tensor()) : Tensor();
}

Node* BackwardPass::completed_by(const Edge& edge) {
  if (!accumulates()) return nullptr;
  std::lock_guard lock(mutex_);
  const auto& [pass, dependencies, received] = progress_of(*edge.node);
  const bool complete = dependencies == 1 && (received.empty() || !received[edge.output]);
  return complete ? edge.node.get() : nullptr;
}

void BackwardPass::add_final_callback(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  final_callbacks_.push_back(std::move(callback));
}

void BackwardPass::note_claim(const std::shared_ptr<AutogradMeta>& leaf) {
  std::lock_guard lock(mutex_);
  claims_.push_back(leaf);
}

}  // namespace

void queue_final_callback(std::function<void()> callback) {
  CHECK(current_pass != nullptr,
        "queue_final_callback: no backward pass is running on this thread");
  current_pass->add_final_callback(std::move(callback));
}

Tensor take_waiting_gradient(size_t input, const Tensor& like) {
  CHECK(current_node != nullptr,
        "take_waiting_gradient: no closure of a backward pass is running on this thread");
  return current_pass->take_waiting(current_node->next[input], like);
}

Node* completed_by(size_t input) { return current_pass->completed_by(current_node->next[input]); }

void note_claim(const std::shared_ptr<AutogradMeta>& leaf) { current_pass->note_claim(leaf); }

bool pass_accumulates() { return current_pass && current_pass->accumulates(); }

Tensor first_gradient(const char* name, const Tensor& output, const Tensor& given) {
  CHECK(output.defined() && output.requires_grad(), name,
        ": the tensor does not depend on any leaf that requires grad; "
        "mark one with set_requires_grad()");
  if (!given) {
    CHECK_AS(ShapeError, output.numel() == 1, name, ": the tensor has shape ", output.shape(),
             ", expected one element (a loss); "
             "pass the gradient of the loss with respect to it otherwise");
    return ones_like(output);
  }
  check_gradient(given, info_of(output), name);
  return given;
}

void run_backward_pass(const Edge& root, Tensor grad, BackwardRequest& request) {
  BackwardPass(request).run(root, std::move(grad));
}

void check_outside_pass(const char* name) {
  CHECK(current_pass == nullptr, name,
        ": called inside a backward pass; hooks cannot start another one");
}

void Tensor::backward(const Tensor& grad_output, Flag retain_graph) const {
  check_outside_pass("backward");
  Tensor grad = first_gradient("backward", *this, grad_output);
  if (program_observer) program_observer->backward();
  BackwardRequest request{.retain_graph = retain_graph};
  run_backward_pass(gradient_edge(*this), std::move(grad), request);
}

}  // namespace ringgrad
