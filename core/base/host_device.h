// For functions that kernels call, too.
#pragma once

#ifdef __CUDACC__
#define RINGGRAD_HOST_DEVICE __host__ __device__
#else
#define RINGGRAD_HOST_DEVICE
#endif
