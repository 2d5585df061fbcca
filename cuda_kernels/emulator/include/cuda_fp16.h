// Stand-in for the CUDA toolkit's header of this name: __half with the bits and rounding of the device's.
#pragma once

#include "cuda_kernels/emulator/sixteen_bit.h"

using __half = ringgrad::emulator::SixteenBit<ringgrad::float16>;
using half = __half;

inline __half __float2half(float value) { return __half(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
