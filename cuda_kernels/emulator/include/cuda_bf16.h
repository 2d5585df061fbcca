// Stand-in for the CUDA toolkit's header of this name: __nv_bfloat16 with the bits and rounding of
// the device's.
#pragma once

#include "ringgrad/cuda_kernels/emulator/include/cuda_fp16.h"

using __nv_bfloat16 = ringgrad::emulator::SixteenBit<ringgrad::bfloat16>;
