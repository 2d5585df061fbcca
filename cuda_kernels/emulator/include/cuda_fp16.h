// Stand-in for the CUDA toolkit's header of this name: __half with the bits and rounding of the device's.
#pragma once

#include "ringgrad/cuda_kernels/emulator/sixteen_bit.h"

using __half = ringgrad::emulator::SixteenBit<ringgrad::float16>;
