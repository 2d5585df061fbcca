// ThreadModes: the state of a thread's guards, for other threads that do a part of its work, such
// as replicas.
#pragma once

#include <optional>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

class ThreadModes {
 public:
  // Copies this thread's present modes.
  ThreadModes()
      : grad_(grad_enabled()), autocast_(autocast_dtype()), provider_(provider_of_thread()) {}

  // Applies the modes to its thread while it lives.
  class Scope {
   public:
    explicit Scope(const ThreadModes& modes)
        : grad_(modes.grad_), autocast_(modes.autocast_), provider_(modes.provider_) {}

   private:
    const GradModeGuard grad_;
    const AutocastGuard autocast_;
    const ProviderGuard provider_;
  };

 private:
  bool grad_;
  std::optional<DType> autocast_;
  std::optional<Provider> provider_;
};

}  // namespace ringgrad
