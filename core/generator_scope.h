// Gives part of a computation its own random numbers. While a scope lives, default_generator() in
// this thread returns the scope's generator for that generator's device. Parts that run side by
// side or one after the other therefore draw the same numbers as each would draw alone.
#pragma once

#include "ringgrad/core/random.h"

namespace ringgrad {

class GeneratorScope {
 public:
  // The generator must outlive the scope. Scopes of a thread must end in reverse order.
  explicit GeneratorScope(Generator& generator) : before_(innermost_), generator_(generator) {
    innermost_ = this;
  }
  ~GeneratorScope() { innermost_ = before_; }
  GeneratorScope(const GeneratorScope&) = delete;

  // Returns this thread's generator for the device, or nullptr if no scope sets one.
  static Generator* find(Device device) {
    for (const GeneratorScope* scope = innermost_; scope; scope = scope->before_)
      if (scope->generator_.state().device() == device) return &scope->generator_;
    return nullptr;
  }

 private:
  static inline constinit thread_local const GeneratorScope* innermost_ = nullptr;
  const GeneratorScope* const before_;
  Generator& generator_;
};

}  // namespace ringgrad
