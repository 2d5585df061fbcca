// CUDA's mathematical functions, as far as kernels and tests call them.
#pragma once

#include <bit>

#include <math.h>  // expf, fmaxf, …: CUDA has them in the global namespace

inline int __popc(unsigned x) { return std::popcount(x); }

#define RINGGRAD_MIN_MAX(T)                        \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
RINGGRAD_MIN_MAX(int)
RINGGRAD_MIN_MAX(unsigned)
RINGGRAD_MIN_MAX(long)
RINGGRAD_MIN_MAX(unsigned long)
RINGGRAD_MIN_MAX(long long)
RINGGRAD_MIN_MAX(float)
RINGGRAD_MIN_MAX(double)
#undef RINGGRAD_MIN_MAX
