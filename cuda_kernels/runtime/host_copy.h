// Copies between the host's memory and a device's, through page-locked memory.
//
// CUDA copies other memory by itself, too. But then the call waits for the stream, and the calls of
// other threads may have to wait for that call ("D2H cudaMemcpyAsync blocks", NVIDIA's forum,
// 222211). If the stream waits for a rank that has died, no thread could ask for it or abort it.
// Here no call waits: the host asks whether the copy is done.
#pragma once

#include <cstddef>

#include "ringgrad/core/device.h"

namespace ringgrad::cuda {

// Queues a copy to the device. The host's memory has been read on return, and the host waits only
// if it is several copies ahead. Thread-safe. Throws CudaError.
void copy_from_host(Stream stream, void* to, const void* from, size_t bytes);

// Copies to the host. The bytes have arrived on return. Thread-safe. Throws CudaError, also if the
// stream is being captured.
void copy_to_host(Stream stream, void* to, const void* from, size_t bytes);

}  // namespace ringgrad::cuda
