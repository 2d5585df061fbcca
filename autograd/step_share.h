// StepShare: divides an optimizer's steps among several processes
// (distributed/sharded_optimizer.h). All of them make the same calls.
#pragma once

#include <vector>

#include "ringgrad/autograd/arena.h"

namespace ringgrad {

class StepShare {
 public:
  // Arrays with the layout of one range of parts().
  struct State {
    std::vector<int> parameters;
    std::vector<int64_t> offsets;
    int64_t numel;
    std::vector<Tensor> arrays;
  };

  virtual ~StepShare() = default;
  // Returns the parts of these parameters that this process steps, as arena_ranges() does. A
  // parameter may lie in a range in part; its offset is negative if it begins before. The gradients
  // are complete after backward.
  virtual std::vector<ArenaRange> parts(const std::vector<Tensor>& parameters) const = 0;
  // Returns a number from 1 on that changes whenever the parts do, the same on all processes.
  virtual int64_t layout() const = 0;
  // Collective. Completes the parameters, of which every process has stepped its parts: by their
  // next use at the latest.
  virtual void gather() const = 0;
  // Sets all gradients to zero. Each process has the whole of them until the next step's backward.
  virtual void zero_grad() const = 0;
  // Collective. Returns for each parameter the elements of one of the arrays, by its number, from
  // all processes' parts.
  virtual std::vector<Tensor> whole(const std::vector<Tensor>& parameters,
                                    const std::vector<State>& states, size_t array) const = 0;
  // Stores in the arrays their parts of `whole`: all parameters' first arrays, and then the second.
  virtual void keep(const std::vector<State>& states, const NamedTensors& whole) const = 0;

  // -- for norms and tests of gradients ----------------------------------------------------------

  // Collective. x becomes the sum of all processes' x.
  virtual void add(const Tensor& x) const = 0;
  // Collective, before a step. Returns true if every parameter's grad is whole until
  // take_gradients_back(); false if only sums over the parts can be had.
  virtual bool lend_gradients() const = 0;
  virtual void take_gradients_back() const = 0;

  // Collective. x, which holds zeros but for the elements of this process's parts, gets those of
  // all processes. No two have the same element.
  virtual void unite(const Tensor& x) const = 0;
};

}  // namespace ringgrad
