#include "ringgrad/cuda_kernels/emulator/fiber.h"

#include <boost/context/detail/fcontext.hpp>

#include <sys/mman.h>

#include "ringgrad/core/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ringgrad::emulator {
namespace {

constexpr size_t kGuardBytes = 4096;

}  // namespace

struct FiberEntry {
  // The first frame of every fiber's stack.
  static void run(boost::context::detail::transfer_t transfer) {
    auto* self = static_cast<Fiber*>(transfer.data);
    self->previous_->context_ = transfer.fctx;
    self->arrived();
    self->entry_(self->argument_);
  }
};

Fiber::Fiber() {
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes, void (*entry)(void*), void* argument)
    : entry_(entry), argument_(argument), stack_bytes_(stack_bytes) {
  void* memory = mmap(nullptr, kGuardBytes + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK_AS(OutOfMemoryError, memory != MAP_FAILED, "emulator: no memory for a stack of ",
           stack_bytes, " bytes");
  mprotect(memory, kGuardBytes, PROT_NONE);  // an overflow faults instead of damaging the neighbour
  stack_ = static_cast<char*>(memory) + kGuardBytes;
  bottom_ = stack_;
  prepare();
}

Fiber::~Fiber() {
  if (!stack_) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  munmap(stack_ - kGuardBytes, kGuardBytes + stack_bytes_);
}

void Fiber::prepare() {
  context_ =
      boost::context::detail::make_fcontext(stack_ + stack_bytes_, stack_bytes_, &FiberEntry::run);
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

void Fiber::abandon() {
#if defined(__SANITIZE_ADDRESS__)
  // Removes the red zones of frames that will not return.
  __asan_unpoison_memory_region(stack_, stack_bytes_);
  fake_stack_ = nullptr;
#elif defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  prepare();
}

void Fiber::switch_to(Fiber& to) {
  to.previous_ = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  // 0: events before the switch happen before those after it.
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
  const auto transfer = boost::context::detail::jump_fcontext(to.context_, &to);
  previous_->context_ = transfer.fctx;
  arrived();
}

// Runs first on a stack after a switch to it.
void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  // This also reports the bounds of the stack that was left, which is how the bounds of a thread's
  // own stack become known.
  __sanitizer_finish_switch_fiber(fake_stack_, &previous_->bottom_, &previous_->stack_bytes_);
#endif
}

}  // namespace ringgrad::emulator
