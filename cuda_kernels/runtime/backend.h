// CUDA's side of core/device/device_backend.h, as far as the other files of this folder need it.
#pragma once

#include "ringgrad/core/device.h"

namespace ringgrad::cuda {

// While a graph is alive its nodes name addresses, so no memory of its device goes back to the system: what the caching
// allocator gives back waits for the last release_memory. Thread-safe.
void keep_memory(Device device);
void release_memory(Device device);

}  // namespace ringgrad::cuda
