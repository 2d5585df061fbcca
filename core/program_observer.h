// What a program does with the library, for whoever watches it (distributed/lint/): where mistakes
// of training on several ranks are made, the library tells. Nobody watches unless RINGGRAD_LINT is
// set, and telling is then a look at a pointer.
#pragma once

#include <span>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Calls may come from several threads at once.
class ProgramObserver {
 public:
  // A sampler begins a pass over these samples, the last `repeated` of which some rank has used
  // already.
  virtual void pass(const void* sampler, std::span<const int64_t> samples, int64_t repeated) = 0;
  // "batch_norm" or "dropout", which compute something else in training.
  virtual void mode(const char* operation, bool training) = 0;
  virtual void backward() = 0;
  virtual void read(const Tensor& value) = 0;  // item()
  // An optimizer moves the parameters of one of its groups.
  virtual void step(const void* optimizer, int group, const NamedTensors& parameters,
                    double lr) = 0;
  // These parameters' gradients are averaged over the ranks from now on.
  virtual void averaged(const NamedTensors& parameters) = 0;
  virtual void batch(int64_t samples) = 0;  // of a forward whose gradients are to be averaged
  virtual void collective() = 0;            // that the program itself asked for

 protected:
  ~ProgramObserver() = default;
};

// Set before main() begins, and left alone.
inline constinit ProgramObserver* program_observer = nullptr;

}  // namespace ringgrad
