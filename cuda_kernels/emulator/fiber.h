// A fiber is a stack that can be left in the middle and continued later, on the same operating
// system thread: what a CUDA thread needs in order to wait at a barrier.
//
// Switching is Boost.Context's fcontext: save the callee-saved registers, exchange the stack
// pointer, 8 ns (ucontext, which also saves the signal mask by a system call, takes 230 ns).
// AddressSanitizer and ThreadSanitizer are told about each switch.
#pragma once

#include <cstddef>

namespace ringgrad::emulator {

class Fiber {
 public:
  // Stands for the stack that the calling thread is on already.
  Fiber();
  // A stack of its own, with a guard page below it, on which entry(argument) runs at the first
  // switch. `entry` must never return. Throws OutOfMemoryError.
  Fiber(size_t stack_bytes, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // Leaves *this, which must be running, and continues `to`. Returns when another fiber switches
  // back.
  void switch_to(Fiber& to);

  bool contains(const void* address) const {  // never, for a thread's own stack
    return address >= stack_ && address < stack_ + (stack_ ? stack_bytes_ : 0);
  }

  // Forgets what is suspended on the stack, without unwinding it; the next switch calls entry
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
  Fiber* previous_ = nullptr;     // who switched to this fiber
  void* fake_stack_ = nullptr;    // AddressSanitizer's
  void* tsan_fiber_ = nullptr;    // ThreadSanitizer's
  const void* bottom_ = nullptr;  // the stack's bounds as AddressSanitizer knows them
};

}  // namespace ringgrad::emulator
