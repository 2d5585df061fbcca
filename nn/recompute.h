// Recomputation of activations (Chen, Xu, Zhang & Guestrin 2016, "Training Deep Nets with Sublinear
// Memory Cost"). A part of a network keeps only its inputs for backward, and backward runs the part
// again to get the rest. A step then needs less memory and one more forward of each such part.
//
//   Tensor forward(const Tensor& x) override {
//     return nn::checkpoint([this](const Tensor& x) { return block_(x); }, stem_(x));
//   }
//
// The gradients have the same bits as without recomputation. The graph, the hooks and the order in
// which gradients become complete are those of the first run. The second run only restores the
// tensors that backward reads. It draws the first run's random numbers, uses its autocast and its
// kernels' provider, and does not change batch norm's running statistics. On a Hopper GPU the
// last bits of gradients may differ: a convolution that begins a part does not sum for the batch
// norm before it (autograd/conv_batch_norm.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

namespace detail {

// While it lives, tensors that this thread's operations save for backward are dropped. Backward
// restores them by calling `again` with aliases of the inputs.
class RecomputeScope {
 public:
  using Run = std::function<void(std::span<const Tensor> inputs)>;
  RecomputeScope(const std::vector<Tensor>& inputs, Run again);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;

 private:
  std::unique_ptr<TapeObserver> first_run_;
};

}  // namespace detail

// Returns f(inputs…), and keeps nothing but the inputs for backward. f is copied, and is called
// again during backward on the engine's thread; the objects that it refers to must live until then.
// Both calls must do the same and write to nothing but running statistics. Random numbers may be
// drawn from the generator of the first input's device. backward throws Error if the second run
// records other operations than the first, or if an input or a leaf that requires a gradient was
// modified in between. It cannot see that a frozen parameter was, or that eval() was called.
// Without grad mode it just calls f. It follows torch.utils.checkpoint.
template <class F, class... Inputs>
auto checkpoint(F f, const Tensor& first, const Inputs&... others) {
  const detail::RecomputeScope scope({first, others...},
                                     [f](std::span<const Tensor> inputs) mutable {
                                       [&]<size_t... i>(std::index_sequence<i...>) {
                                         f(inputs[i]...);
                                       }
                                       (std::index_sequence_for<Tensor, Inputs...>());
                                     });
  return f(first, others...);
}

// Recomputes the chains of a network. A chain is what one of its Sequentials calls one after the
// other, such as the blocks of a ResNet; Sequentials inside such a block do not count. A chain of n
// is cut into runs of about √(n / 2) modules, and each run is checkpointed. The inputs of all
// single modules of a long chain would fill the memory, too. While it lives, calls of the network
// and of its replicas are recomputed. Not thread-safe.
class Recomputation {
 public:
  // Throws Error if the network has no Sequential of more than one module. The network must outlive
  // this object.
  explicit Recomputation(Module& network);
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;

  // Returns the number of runs that are recomputed.
  int size() const;
  // Call it after a step in which all runs were recomputed. It stops recomputing the runs that take
  // longest, as long as the tensors on `device` never need more than `bytes`. Throws Error if that
  // step already needed more.
  void fit(int64_t bytes, Device device);

 private:
  struct Run;
  static Tensor call(const std::vector<std::shared_ptr<Run>>& runs, Module& chain, Tensor x);
  void find_chains(Module& module);

  std::vector<Module*> chains_;
  std::vector<std::shared_ptr<Run>> runs_;
};

}  // namespace ringgrad::nn
