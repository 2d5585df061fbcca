// Controls the tape for a program: whether a thread's operations join the graph (NoGradGuard), and
// what happens at the end of a pass over it. Tensor::backward() begins a pass. Several threads may
// call it at once for graphs that share nothing, not even leaves. For graphs that share leaves the
// threads must take turns.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Decides whether this thread's operations join the graph while it lives.
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

// No operation joins the graph. For evaluation, optimizer steps and backward itself.
class NoGradGuard : GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};

// Returns true if this thread's operations join the graph, as they do outside a NoGradGuard.
inline bool grad_enabled() { return GradModeGuard::enabled_; }

// Runs `callback` on the thread that called backward(), after the last node and before backward()
// returns. May be called only during a backward pass, from a hook or a closure. backward() rethrows
// its exceptions. If the pass itself fails, the callbacks are dropped.
void queue_final_callback(std::function<void()> callback);
namespace detail {
// The exception that has ended this thread's last backward pass, or none. Callbacks that the pass
// drops may ask for it.
inline thread_local std::exception_ptr pass_error;
}  // namespace detail

// Returns true if this thread runs a backward pass that accumulates gradients in leaves. A pass of
// autograd::grad() does not.
bool pass_accumulates();

// Notes that an operation of this thread's pass has claimed the leaf's gradient (gradient_home.h).
void note_claim(const std::shared_ptr<AutogradMeta>& leaf);

// Takes the gradient that input number `input` of the running node has received from other nodes so
// far. The node's closure adds it to its own gradient and returns the sum, which so costs no extra
// pass over memory. Returns an undefined tensor, so that the engine adds, if there is none with the
// layout and strides of `like`, or if timing would decide whether there is one. REQUIRES: called
// from a closure; the gradient is only read, because others may hold it.
Tensor take_waiting_gradient(size_t input, const Tensor& like);

// Returns the node that receives the gradient of input number `input` of the running node. Returns
// nullptr if that node waits for another gradient or has one to add, and in a pass that does not
// accumulate. REQUIRES: called from a closure, for an input that wants a gradient, after
// take_waiting_gradient().
Node* completed_by(size_t input);

}  // namespace ringgrad
