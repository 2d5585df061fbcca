// CHECK tests for the caller's mistakes. ASSERT tests for mistakes in this library. Both throw.
// Only .cpp and .cu files include this file, because the names of the macros are common ones.
#pragma once

#include "ringgrad/core/error.h"

// CHECK(n > 0, "linspace: n is ", n, ", expected a positive count")
#define CHECK(condition, ...) CHECK_AS(::ringgrad::Error, condition, __VA_ARGS__)

// CHECK_AS(ShapeError, a == b, "add: ...") throws that type of error.
#define CHECK_AS(Type, condition, ...)          \
  do {                                          \
    if (!(condition)) [[unlikely]]              \
      throw Type(::ringgrad::str(__VA_ARGS__)); \
  } while (0)

#define ASSERT(condition)                                                                      \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      throw ::ringgrad::Error(::ringgrad::str("internal error: ", #condition, " is false at ", \
                                              __FILE__, ":", __LINE__));                       \
  } while (0)

// Under AddressSanitizer, ASAN_POISON_MEMORY_REGION(data, bytes) forbids access to a region and
// ASAN_UNPOISON_MEMORY_REGION allows it again. In other builds both do nothing. They guard memory
// that is kept instead of freed, such as a cached block or the bytes beyond an array.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#endif
