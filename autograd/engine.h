// How a program drives the tape: whether what a thread computes joins the graph (NoGradGuard), and
// what happens at the end of a pass over it. The pass itself begins with Tensor::backward().
// Several threads may call that at once for graphs that share nothing, leaves included; and for
// graphs that share leaves where the threads take turns.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// While it lives, what this thread computes joins the graph, or does not.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : previous_(std::exchange(enabled_, enabled)) {}
  ~GradModeGuard() { enabled_ = previous_; }
  GradModeGuard(const GradModeGuard&) = delete;

 private:
  friend bool grad_enabled();
  static inline constinit thread_local bool enabled_ = true;
  bool previous_;
};

// Nothing joins the graph: evaluation, optimizer steps, backward itself.
class NoGradGuard : GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};

// Whether this thread's operations join the graph: not inside a NoGradGuard.
inline bool grad_enabled() { return GradModeGuard::enabled_; }

// Runs `callback` on the thread that called backward(), after the last node and before backward()
// returns. May be called only during a backward pass, from a hook or a closure; an exception from
// it leaves backward(). Where the pass itself fails, the callbacks are dropped.
void queue_final_callback(std::function<void()> callback);

// Whether this thread runs a backward pass that accumulates gradients in leaves: not that of
// autograd::grad().
bool pass_accumulates();

// For a closure of the running pass: takes the gradient that others have given input number `input`
// of its node so far, which the closure adds to its own and returns as one; the sum then costs no
// pass over memory beyond its own. Undefined where there is none that lies in memory as `like`, or
// whether it is there would be a matter of time: then the engine adds. Others may hold it, too:
// REQUIRES that it is only read.
Tensor take_waiting_gradient(size_t input, const Tensor& like);

namespace autograd {

struct GradOptions {
  // One for each output; without, these have one element.
  std::vector<Tensor> grad_outputs = {};
  bool retain_graph = false;
  // Not there: Error. The derivatives have no graph of their own.
  bool create_graph = false;
  // An input that the outputs do not depend on gives an undefined tensor instead of Error.
  bool allow_unused = false;
};
// d(outputs)/d(input), one for each input, leaf or not, and nothing is accumulated in any leaf: as
// torch.autograd.grad.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

}  // namespace autograd

}  // namespace ringgrad
