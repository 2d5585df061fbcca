// CHECK is for the caller's mistake, ASSERT for ours ("assuming no bugs in this library, always true").
// Both throw. Included by .cpp and .cu files only, never by a header: the names are common ones.
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

#define ASSERT(condition)                                                                             \
  do {                                                                                                \
    if (!(condition)) [[unlikely]]                                                                    \
      throw ::ringgrad::Error(                                                                        \
          ::ringgrad::str("internal error: ", #condition, " is false at ", __FILE__, ":", __LINE__)); \
  } while (0)
