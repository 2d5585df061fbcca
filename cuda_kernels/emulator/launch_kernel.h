// cudaLaunchKernelEx: packs a kernel and its arguments for the stream, as CUDA does.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>

#include "cuda_kernels/emulator/runtime_api.h"

namespace ringgrad::emulator {

// Queues a launch of body(arguments) on the configuration's stream.
cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), std::shared_ptr<const void> arguments);

template <class... Params>
struct KernelCall {
  static_assert((std::is_trivially_copyable_v<Params> && ...),
                "kernel arguments are copied to the device byte by byte");
  void (*kernel)(Params...);
  std::tuple<Params...> arguments;

  static void run(const void* call) {
    const auto& self = *static_cast<const KernelCall*>(call);
    std::apply(self.kernel, self.arguments);
  }
};

}  // namespace ringgrad::emulator

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  using Call = ringgrad::emulator::KernelCall<Params...>;
  return ringgrad::emulator::launch(
      *config, &Call::run, std::make_shared<Call>(Call{kernel, {static_cast<Params>(static_cast<Args&&>(args))...}}));
}

// More than 48 KiB of dynamic shared memory need to be asked for on a device; here nothing is kept back.
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*)(Params...), cudaFuncAttribute, int) {
  return cudaSuccess;
}
