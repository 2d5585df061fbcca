// The graph behind a tensor, which is the tape. A Node is one operation on it. It knows how to turn
// the gradients of its outputs into those of its inputs, and which nodes receive them. AutogradMeta
// is what a tensor knows of its place in the graph.
//
// There is no list of nodes. The tape is the graph of the nodes that a loss reaches, and `sequence`
// is its order.
//
// Ownership: a tensor owns the node that made it (grad_fn), and a node owns the nodes of its
// inputs. So the graph of a loss lives as long as the loss. A backward closure captures saved
// tensors, which have no history. It never owns the tensor that owns it, so there are no cycles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ringgrad/autograd/grad_hooks.h"

namespace ringgrad {

// One gradient per input of the operation. An undefined Tensor means "no gradient for this input".
using Gradients = std::vector<Tensor>;

struct Node;

// The receiver of an input's gradient: output number `output` of `node`. A null node takes no
// gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
};

// A node's record of an output, against which the arriving gradient is checked.
struct OutputInfo {
  Shape shape;
  DType dtype;
  Device device;
};

inline OutputInfo info_of(const Tensor& x) { return {x.shape(), x.dtype(), x.device()}; }
// Throws Error unless the gradient has its tensor's shape, dtype and device. With `input` the
// message says that the operation's backward returned the gradient for that input.
void check_gradient(const Tensor& gradient, const OutputInfo& tensor, const char* operation,
                    int input = -1);

struct Node {
  // A name such as "conv2d" for messages, traces and graph printing.
  const char* name;
  // A note for readers of the graph about fused operations: "+ residual + relu".
  const char* fused = "";
  // The order of the tape: backward runs the newest ready node first. Leaves have the largest
  // number.
  uint64_t sequence;
  // next[i] receives the gradient of input i.
  std::vector<Edge> next;
  std::vector<OutputInfo> outputs;
  // Returns one gradient per input. grad_outputs[i] is undefined if output i did not contribute to
  // the loss.
  std::function<Gradients(std::span<const Tensor> grad_outputs)> backward;

  // The hooks of each output; see grad_hooks.h.
  std::vector<std::pair<int, std::shared_ptr<GradHooks>>> grad_hooks;

  // The values of each output, kept while a GraphValues lives (graph_print.h). They are aliases
  // without history, so there is no cycle.
  struct Seen {
    Tensor value;
    Tensor gradient;
  };
  std::vector<Seen> seen;

  // The engine's data for one backward pass; see engine.cpp.
  struct Progress {
    uint64_t pass = 0;                 // the pass to which the rest belongs
    int dependencies = 0;              // gradients still to arrive
    std::vector<Tensor> grad_outputs;  // the sums so far
  } progress;

  Node(const char* name, uint64_t sequence) : name(name), sequence(sequence) {}
  ~Node();  // iterative: a chain of a million nodes must not overflow the stack
  Node(const Node&) = delete;
};

// AccumulateGrad nodes run before all other ready nodes, so that a leaf's hooks run as soon as its
// gradient is complete.
inline constexpr uint64_t kLeafSequence = UINT64_MAX;

// Is notified of the operations that a thread records.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  // An operation has been recorded, and its node is complete.
  virtual void recorded(Node& node, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) = 0;
  // Returns true while backward runs a part of the network again (nn/recompute.h). Effects that
  // must happen once, such as an update of running statistics, have then happened already.
  virtual bool runs_again() const { return false; }
  // Returns f(). When backward runs the part again, it returns the first result instead. Operations
  // that involve other ranks use it.
  using Once = std::function<std::vector<Tensor>()>;
  virtual std::vector<Tensor> once(const Once& f) { return f(); }
};
inline constinit thread_local TapeObserver* tape_observer = nullptr;

// Returns the next number of the tape. The process has one counter, so that graphs built by several
// threads stay ordered.
uint64_t next_sequence();

// A tensor's place in the graph. core/tensor.h holds an opaque pointer to it.
struct AutogradMeta {
  // True for a leaf that requires a gradient.
  bool requires_grad = false;
  // The gradient of a leaf once backward has reached it; of another tensor after retain_grad().
  Tensor grad;
  // The node that made this tensor; null for a leaf.
  std::shared_ptr<Node> grad_fn;
  // The number of this tensor among the outputs of grad_fn.
  int output = 0;

  std::shared_ptr<GradHooks> grad_hooks;  // shared with grad_fn, or with the accumulator

  // See gradient_home.h. `zeros` is the number of writes to grad's storage after which it held
  // zeros; all parameters of an arena share it. `claimed` is grad, from when an operation of a
  // pass has taken it to write there until it arrives.
  std::shared_ptr<uint32_t> zeros;
  Tensor claimed;
  // This rank has a part of the averaged gradient (distributed/zero).
  bool is_averaged_in_parts = false;

  // A leaf's AccumulateGrad node. All uses in living graphs share it.
  std::weak_ptr<Node> accumulator;
  // The hooks in order of registration.
  std::map<int, std::function<void(const Tensor&)>> post_accumulate_hooks;
  int next_hook = 0;
};

// Returns the meta of `tensor`, which is made if it does not exist.
AutogradMeta& autograd_meta(const Tensor& tensor);

// Returns the edge that receives d(loss)/d(tensor): grad_fn or the leaf's AccumulateGrad. It is
// null if no gradient is required.
Edge gradient_edge(const Tensor& tensor);

}  // namespace ringgrad
