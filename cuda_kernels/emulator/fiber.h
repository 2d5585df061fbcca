// A fiber is a stack that can be left in the middle and continued later, on the same operating
// system thread. A CUDA thread needs this in order to wait at a barrier.
//
// Boost.Context's fcontext switches: it saves the callee-saved registers and exchanges the stack
// pointer, in 8 ns (ucontext also saves the signal mask by a system call and takes 230 ns).
// AddressSanitizer and ThreadSanitizer are informed of each switch.
#pragma once

#include <cstddef>

namespace ringgrad::emulator {

class Fiber {
 public:
  // Represents the calling thread's own stack.
  Fiber();
  // Makes a stack with a guard page below it. The first switch runs entry(argument) on it. `entry`
  // must never return. Throws OutOfMemoryError.
  Fiber(size_t stack_bytes, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // Leaves *this, which must be running, and continues `to`. Returns when another fiber switches
  // back.
  void switch_to(Fiber& to);

  bool contains(const void* address) const {  // always false for a thread's own stack
    return address >= stack_ && address < stack_ + (stack_ ? stack_bytes_ : 0);
  }

  // Forgets what is suspended on the stack, without unwinding it. The next switch calls entry
  // again. The frames must own nothing.
  void abandon();

 private:
  void prepare();
  void arrived();
  friend struct FiberEntry;

  void* context_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* stack_ = nullptr;  // the lowest usable byte; nullptr for a thread's own stack
  size_t stack_bytes_ = 0;
  Fiber* previous_ = nullptr;     // the fiber that switched to this one
  void* fake_stack_ = nullptr;    // AddressSanitizer's
  void* tsan_fiber_ = nullptr;    // ThreadSanitizer's
  const void* bottom_ = nullptr;  // the stack's bounds as AddressSanitizer knows them
};

}  // namespace ringgrad::emulator
