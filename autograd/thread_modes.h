// ThreadModes: what the guards of a thread say, for other threads that do a part of its work, such
// as replicas.
#pragma once

#include <optional>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

class ThreadModes {
 public:
  // Those of this thread, as they are now.
  ThreadModes()
      : grad_(grad_enabled()), autocast_(autocast_dtype()), provider_(provider_of_thread()) {}

  // While it lives, its thread has them. REQUIRES: it has no guards of its own that say otherwise,
  // as a new thread.
  class Scope {
   public:
    explicit Scope(const ThreadModes& modes) {
      if (!modes.grad_) no_grad_.emplace();
      if (modes.autocast_) autocast_.emplace(*modes.autocast_);
      if (modes.provider_) provider_.emplace(*modes.provider_);
    }

   private:
    std::optional<NoGradGuard> no_grad_;
    std::optional<AutocastGuard> autocast_;
    std::optional<ProviderGuard> provider_;
  };

 private:
  bool grad_;
  std::optional<DType> autocast_;
  std::optional<Provider> provider_;
};

}  // namespace ringgrad
