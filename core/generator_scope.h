// Random numbers of its own for a part of a computation: while a scope lives, default_generator()
// of the generator's device is this generator, in this thread. So parts that run beside each other,
// or one after the other, draw what they would draw alone.
#pragma once

#include "ringgrad/core/random.h"

namespace ringgrad {

class GeneratorScope {
 public:
  // The generator must outlive the scope. Scopes of a thread end in the reverse of their order.
  explicit GeneratorScope(Generator& generator) : before_(innermost_), generator_(generator) {
    innermost_ = this;
  }
  ~GeneratorScope() { innermost_ = before_; }
  GeneratorScope(const GeneratorScope&) = delete;

  // This thread's for the device; nullptr: none.
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
