// Stand-in for the CUDA toolkit's header of this name, as cuda_runtime.h is. It has what one file
// of ours needs, about devices that reach each other's memory.
#pragma once

#include <cuda_runtime.h>

inline constexpr auto cudaErrorPeerAccessAlreadyEnabled = static_cast<cudaError_t>(704);

// The emulator's devices all can.
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer);
// Of the current device.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
