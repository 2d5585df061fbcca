// CUDA's mathematical functions that C++ does not have. The fast approximations (__expf, …) compute exactly.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <math.h>  // expf, fmaxf, …: CUDA has them in the global namespace

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(std::sin(M_PI * static_cast<double>(x)));
  *cosine = static_cast<float>(std::cos(M_PI * static_cast<double>(x)));
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(uint64_t{x} * y >> 32); }

template <class T>
T __ldg(const T* address) {
  return *address;
}

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
