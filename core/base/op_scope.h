// The name of the operation a thread is in, for messages raised far below it (out of memory, a stale saved tensor).
// Costs two stores to thread-local memory.
#pragma once

namespace ringgrad {

const char* current_op();  // "tensor" outside every operation

class OpScope {
 public:
  explicit OpScope(const char* name) : previous_(current) { current = name; }
  ~OpScope() { current = previous_; }
  OpScope(const OpScope&) = delete;

 private:
  friend const char* current_op();
  static inline constinit thread_local const char* current = "tensor";
  const char* previous_;
};

inline const char* current_op() { return OpScope::current; }

}  // namespace ringgrad
