// differentiable(): the only way an operation joins the graph.
//
//   Tensor exp(const Tensor& x) {
//     Tensor y = empty_like(x);
//     kernels::exp(y, x);
//     return differentiable("exp", {x}, y, [y = save(y, kSavedOutput)](const Tensor& dy) ->
//     Gradients {
//       return {mul(dy, y.get())};
//     });
//   }
//
// The closure receives d(loss)/dy and returns one gradient per input, in their order. It must
// capture save(t), never a tensor with history. It runs on the engine's thread, without grad mode.
// In a pass that keeps a graph of the gradients (create_graph) it runs in grad mode, and dy and the
// saved tensors have their history. Such a pass records what the closure computes by operations. A
// closure that calls kernels takes another way if grad_enabled(), or the pass throws. A pass cannot
// see what a closure reads and writes through data<T>().
#pragma once

#include <initializer_list>
#include <utility>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/graph.h"

namespace ringgrad {

// Says which tensor of its operation a saved tensor is: the number of an input, or one of these.
// Tensors of integers and truth values need not say. For others a graph of the gradients must know.
inline constexpr int kSavedOutput = -1;    // the first output
inline constexpr int kSavedConstant = -2;  // does not depend on an input
inline constexpr int kSavedUnsaid = -3;

// SavedTensor: what a backward closure keeps of a tensor. It is an alias without history, with a
// check that the tensor has not been modified in place since.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Tensor& tensor, int from);  // an undefined tensor may be saved

  // Returns the tensor. Throws Error that names the current operation and both versions if it was
  // modified in place. In a pass that keeps a graph of the gradients it is the input or output with
  // its history, which lives as long as the closure runs. If an input was saved repeated
  // (broadcast_view), it is the input itself.
  const Tensor& get() const;
  explicit operator bool() const { return tensor_.defined(); }

 private:
  Tensor tensor_;
  uint32_t version_ = 0;
  int from_ = kSavedConstant;
};

inline SavedTensor save(const Tensor& tensor, int from = kSavedUnsaid) { return {tensor, from}; }
// Saves nothing if only the gradient of an input that requires none would need it.
inline SavedTensor save_if(bool needed, const Tensor& tensor, int from = kSavedUnsaid) {
  return needed ? SavedTensor(tensor, from) : SavedTensor();
}

// Returns true if this input needs a gradient; closures skip the others.
inline bool wants_grad(const Tensor& input) {
  return input && grad_enabled() && input.requires_grad();
}

namespace detail {
// Returns true if an operation on these inputs must be recorded.
bool needs_grad(std::span<const Tensor> inputs);
using Backward = std::function<Gradients(std::span<const Tensor>)>;
void record(const char* name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            Backward backward);
}  // namespace detail

// REQUIRES: y is fresh, that is, only this operation has made it. Returns y.
template <class Closure>
Tensor differentiable(const char* name, std::span<const Tensor> inputs, Tensor y,
                      Closure&& backward) {
  if (detail::needs_grad(inputs))
    detail::record(name, inputs, {&y, 1},
                   [backward = std::forward<Closure>(backward)](std::span<const Tensor> dy) {
                     return backward(dy[0]);
                   });
  return y;
}
template <class Closure>
Tensor differentiable(const char* name, std::initializer_list<Tensor> inputs, Tensor y,
                      Closure&& backward) {
  return differentiable(name, std::span(inputs.begin(), inputs.size()), std::move(y),
                        std::forward<Closure>(backward));
}

// Notes in the graph what was fused into the operation that made y (Node::fused). Returns y.
Tensor with_fused(Tensor y, const char* what);

// The same for several outputs. The closure receives all their gradients; those of outputs that the
// loss does not depend on are undefined.
template <class Closure>
std::vector<Tensor> differentiable(const char* name, std::span<const Tensor> inputs,
                                   std::vector<Tensor> outputs, Closure&& backward) {
  if (detail::needs_grad(inputs))
    detail::record(name, inputs, outputs, std::forward<Closure>(backward));
  return outputs;
}

}  // namespace ringgrad
