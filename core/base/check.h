// CHECK is for the caller's mistake, ASSERT for ours ("assuming no bugs in this library, always
// true"). Both throw. Included by .cpp and .cu files only, never by a header: the names are common
// ones.
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

// ASAN_POISON_MEMORY_REGION(data, bytes) forbids a region under AddressSanitizer,
// ASAN_UNPOISON_MEMORY_REGION allows it again; nothing in other builds. For memory that is kept,
// not freed: a free block of a cache, what lies behind an array.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) static_cast<void>(0)
#endif
