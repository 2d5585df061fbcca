// Recomputation of activations (Chen, Xu, Zhang & Guestrin 2016, "Training Deep Nets with Sublinear
// Memory Cost"): a part of a network keeps only its inputs for backward, and backward runs the part
// again for the rest. A step then needs less memory and, for each such part, one more forward.
//
//   Tensor forward(const Tensor& x) override {
//     return nn::checkpoint([this](const Tensor& x) { return block_(x); }, stem_(x));
//   }
//
// The gradients are those without it, bit for bit: the graph is that of the first run, and so are
// the hooks and the order in which gradients become complete; the second run only brings back what
// backward reads. It draws the random numbers of the first, under its autocast and its kernels'
// provider, and leaves batch norm's running statistics alone.
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

// While it lives, what operations of this thread save for backward is dropped; backward gets it
// back by calling `again` with aliases of the inputs.
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

// Returns f(inputs…), of which nothing but the inputs is kept for backward. f is copied, and called
// again during backward, on the engine's thread; what it refers to must live until then. It must do
// the same both times, apart from random numbers, which it draws from the generator of the first
// input's device, and write to nothing but running statistics. Error from backward if the second
// run records other operations than the first, or if an input or a leaf, such as a parameter, was
// modified in between. Without grad mode it is f. As torch.utils.checkpoint.
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

// Recomputes the chains of a network: what its Sequentials call one after the other, such as the
// blocks of a ResNet, but for Sequentials in such a block. A chain of n is cut into runs of about
// √(n / 2), and each run is checkpointed: of a long chain the inputs would fill the memory, too.
// While it lives calls of the network go so, those of replicas as well; later ones as before. Not
// thread-safe.
class Recomputation {
 public:
  // Throws Error where the network has no Sequential of more than one module. The network must
  // outlive this object.
  explicit Recomputation(Module& network);
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;

  // The runs that are recomputed.
  int size() const;
  // After a step in which all were recomputed: those that it takes longest to compute again keep
  // what they save, as far as the tensors on `device` then never need more than so many bytes.
  // Throws Error if that step needed more already.
  void fit(int64_t bytes, Device device);

 private:
  struct Run;
  static Tensor call(const std::vector<std::shared_ptr<Run>>& runs, Module& chain, Tensor x);
  void find_chains(Module& module);

  std::vector<Module*> chains_;
  std::vector<std::shared_ptr<Run>> runs_;
};

}  // namespace ringgrad::nn
