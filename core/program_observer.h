// Tells an observer (distributed/lint/) what a program does with the library. The library calls it
// at the points where mistakes in training on several ranks happen. There is no observer unless
// RINGGRAD_LINT is set, and then each point costs one test of a pointer.
#pragma once

#include <span>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Several threads may call at once.
class ProgramObserver {
 public:
  // A sampler begins a pass over these samples. Some rank has already used the last `repeated` of
  // them.
  virtual void pass(const void* sampler, std::span<const int64_t> samples, int64_t repeated) = 0;
  // The operation is "batch_norm" or "dropout", whose result depends on whether the module trains.
  virtual void mode(const char* operation, bool training) = 0;
  virtual void backward() = 0;
  virtual void read(const Tensor& value) = 0;  // item()
  // An optimizer updates the parameters of one of its groups.
  virtual void step(const void* optimizer, int group, const NamedTensors& parameters,
                    double lr) = 0;
  // The gradients of these parameters are averaged over the ranks from now on.
  virtual void averaged(const NamedTensors& parameters) = 0;
  virtual void batch(int64_t samples) = 0;  // in a forward pass whose gradients will be averaged
  virtual void collective() = 0;            // one that the program itself requested

 protected:
  ~ProgramObserver() = default;
};

// It is set before main() begins and never changes afterwards.
inline constinit ProgramObserver* program_observer = nullptr;

}  // namespace ringgrad
