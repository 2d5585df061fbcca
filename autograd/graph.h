// The graph behind a tensor, which is the tape. A Node is one operation on it: it knows how to turn
// the gradients of its outputs into those of its inputs, and which nodes receive them. AutogradMeta
// is what a tensor knows of its place.
//
// There is no list of nodes: the tape is the graph of those that a loss reaches, and `sequence` is
// its order.
//
// Ownership. A tensor owns the node that made it (grad_fn), and a node owns the nodes of its
// inputs: the graph of a loss lives as long as the loss. A backward closure captures saved tensors,
// which have no history, so it never owns the tensor that owns it: there are no cycles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/autograd/grad_hooks.h"

namespace ringgrad {

// One per input of the operation; an undefined Tensor means "no gradient for this input".
using Gradients = std::vector<Tensor>;

struct Node;

// Where the gradient of an input goes: output number `output` of `node`. A null node takes no
// gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
};

// What a node remembers of an output, to check the gradient that arrives for it.
struct OutputInfo {
  Shape shape;
  DType dtype;
  Device device;
};

struct Node {
  // "conv2d": for messages, traces and graph printing.
  const char* name;
  // Words for what was done in the same pass, for who looks at the graph: "+ residual + relu".
  const char* fused = "";
  // The tape's order: backward runs the newest ready node first; leaves have the largest.
  uint64_t sequence;
  // next[i] receives the gradient of input i.
  std::vector<Edge> next;
  std::vector<OutputInfo> outputs;
  // grad_outputs[i] is undefined where output i did not contribute to the loss. Returns one
  // gradient per input.
  std::function<Gradients(std::span<const Tensor> grad_outputs)> backward;

  // By output: see grad_hooks.h.
  std::vector<std::pair<int, std::shared_ptr<GradHooks>>> grad_hooks;

  // By output, of what was made while a GraphValues lived (graph_print.h). Aliases without history:
  // no cycle.
  struct Seen {
    Tensor value;
    Tensor gradient;
  };
  std::vector<Seen> seen;

  // The engine's notes during one backward pass; see engine.cpp.
  struct Progress {
    uint64_t pass = 0;                 // which pass the rest belongs to
    int dependencies = 0;              // gradients still to arrive
    std::vector<Tensor> grad_outputs;  // summed so far
  } progress;

  Node(const char* name, uint64_t sequence) : name(name), sequence(sequence) {}
  ~Node();  // iterative: a chain of a million nodes must not overflow the stack
  Node(const Node&) = delete;
};

// AccumulateGrad nodes come before all else that is ready: a leaf's hooks run as soon as its
// gradient is complete.
inline constexpr uint64_t kLeafSequence = UINT64_MAX;

// Looks on while operations of a thread are recorded.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  // An operation has been recorded, and its node is complete.
  virtual void recorded(Node& node, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) = 0;
  // Returns true where backward runs a part of the network again (nn/recompute.h): what should
  // happen once, such as a step of running statistics, has happened.
  virtual bool runs_again() const { return false; }
  // Returns f(), or there what it returned the first time: for what ranks do together.
  using Once = std::function<std::vector<Tensor>()>;
  virtual std::vector<Tensor> once(const Once& f) { return f(); }
};
inline constinit thread_local TapeObserver* tape_observer = nullptr;

// The next number of the tape; one counter for the process, so that graphs built by several threads
// stay ordered.
uint64_t next_sequence();

// What a tensor knows about its place in the graph: core/tensor.h holds an opaque pointer to it.
struct AutogradMeta {
  // A leaf that wants a gradient.
  bool requires_grad = false;
  // A leaf's, once backward has reached it; another's after retain_grad().
  Tensor grad;
  // The node that made a non-leaf.
  std::shared_ptr<Node> grad_fn;
  // The output of grad_fn that this tensor is.
  int output = 0;

  std::shared_ptr<GradHooks> grad_hooks;  // shared with grad_fn, or with the accumulator

  // See gradient_home.h. The version of grad's storage at which it held zeros, noted once for all
  // of an arena; and grad, once an operation has taken it to write there.
  std::shared_ptr<uint32_t> zeros;
  Tensor claimed;

  // A leaf's AccumulateGrad node, shared by all uses in living graphs.
  std::weak_ptr<Node> accumulator;
  // In order of registration.
  std::map<int, std::function<void(const Tensor&)>> post_accumulate_hooks;
  int next_hook = 0;
};

// The meta of `tensor`, made if need be.
AutogradMeta& autograd_meta(const Tensor& tensor);

// The edge that takes d(loss)/d(tensor): grad_fn, or the leaf's AccumulateGrad; null where no
// gradient is wanted.
Edge gradient_edge(const Tensor& tensor);

}  // namespace ringgrad
