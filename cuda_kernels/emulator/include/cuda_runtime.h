// Stand-in for the CUDA toolkit's header of this name; on the include path only when CUDA is emulated.
#pragma once

#include "ringgrad/cuda_kernels/emulator/atomic.h"
#include "ringgrad/cuda_kernels/emulator/device_math.h"
#include "ringgrad/cuda_kernels/emulator/language.h"
#include "ringgrad/cuda_kernels/emulator/launch_kernel.h"
#include "ringgrad/cuda_kernels/emulator/runtime_api.h"
