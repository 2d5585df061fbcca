// The calls by which kernels report their accesses. g++ and clang++ insert them into code compiled
// with -fsanitize=thread. This file defines them instead of the ThreadSanitizer library. So each
// load and store of a kernel, with its address and its place in the program, reaches the observer.
#include <cstdint>

#include "ringgrad/cuda_kernels/emulator/block.h"

namespace {

inline void report(const volatile void* address, size_t bytes, bool write, bool atomic,
                   const void* pc, bool aligned = false) {
  using namespace ringgrad::emulator;
  if (!observing) return;
  observing = false;  // the observer's own accesses are not the kernel's
  observer->access(
      {const_cast<const void*>(address), bytes, write, atomic, pc, AsyncCopy::None, aligned});
  observing = true;
}

}  // namespace

#define PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* p, size_t n) { report(p, n, false, false, PC); }
void __tsan_write_range(void* p, size_t n) { report(p, n, true, false, PC); }

#define PLAIN(N)                                                             \
  void __tsan_read##N(void* p) { report(p, N, false, false, PC, true); }     \
  void __tsan_write##N(void* p) { report(p, N, true, false, PC, true); }     \
  void __tsan_unaligned_read##N(void* p) { report(p, N, false, false, PC); } \
  void __tsan_unaligned_write##N(void* p) { report(p, N, true, false, PC); } \
  void __tsan_volatile_read##N(void* p) { report(p, N, false, false, PC); }  \
  void __tsan_volatile_write##N(void* p) { report(p, N, true, false, PC); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define FETCH(BITS, T, NAME, BUILTIN)                           \
  T __tsan_atomic##BITS##_##NAME(volatile T* p, T value, int) { \
    report(p, BITS / 8, true, true, PC);                        \
    return BUILTIN(p, value, __ATOMIC_SEQ_CST);                 \
  }
#define ATOMIC(BITS, T)                                                                            \
  T __tsan_atomic##BITS##_load(const volatile T* p, int) {                                         \
    report(p, BITS / 8, false, true, PC);                                                          \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##BITS##_store(volatile T* p, T value, int) {                                  \
    report(p, BITS / 8, true, true, PC);                                                           \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  FETCH(BITS, T, exchange, __atomic_exchange_n)                                                    \
  FETCH(BITS, T, fetch_add, __atomic_fetch_add)                                                    \
  FETCH(BITS, T, fetch_sub, __atomic_fetch_sub)                                                    \
  FETCH(BITS, T, fetch_and, __atomic_fetch_and)                                                    \
  FETCH(BITS, T, fetch_or, __atomic_fetch_or)                                                      \
  FETCH(BITS, T, fetch_xor, __atomic_fetch_xor)                                                    \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* p, T* expected, T value, int,      \
                                                    int) {                                         \
    report(p, BITS / 8, true, true, PC);                                                           \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* p, T* expected, T value, int, int) { \
    report(p, BITS / 8, true, true, PC);                                                           \
    return __atomic_compare_exchange_n(p, expected, value, true, __ATOMIC_SEQ_CST,                 \
                                       __ATOMIC_SEQ_CST);                                          \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
