// cudaLaunchKernelEx: packs a kernel and its arguments for the stream, as CUDA does.
#pragma once

#include <type_traits>

#include "ringgrad/cuda_kernels/emulator/runtime_api.h"

namespace ringgrad::emulator {

// Queues a launch of body(call) on the configuration's stream; the `bytes` at `call` are copied.
cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), const void* call, size_t bytes);

}  // namespace ringgrad::emulator

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  static_assert((std::is_trivially_copyable_v<Params> && ...),
                "kernel arguments are copied to the device byte by byte");
  // A closure instead of a tuple: it is instantiated for every kernel, and compiles in half the time.
  const auto call = [kernel, ... values = static_cast<Params>(static_cast<Args&&>(args))] { kernel(values...); };
  const auto run = [](const void* copied) { (*static_cast<const decltype(call)*>(copied))(); };
  return ringgrad::emulator::launch(*config, run, &call, sizeof call);
}

// More than 48 KiB of dynamic shared memory need to be asked for on a device; here nothing is kept back.
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*)(Params...), cudaFuncAttribute, int) {
  return cudaSuccess;
}
