// A kernel call as text that contains everything its speed depends on, and nothing else. Autotune
// uses it as a key to remember the faster provider, and vendor libraries' primitives are cached
// under it.
#pragma once

#include <string>

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

// Returns for example "conv2d float32[64,16,32,32] float32[64,3,32,32] float32[16,3,3,3] - 1x1 1x1
// 1x1 1". A tensor gives its dtype, its shape and, unless it is contiguous, its layout. An
// undefined tensor gives "-". Numbers and options follow as they are.
std::string call_signature(const char* kernel, std::span<const CallArgument> arguments);

// Does the same for tensors, numbers and options that do not come from a call.
template <class... Args>
std::string call_signature(const char* kernel, const Args&... args) {
  const CallArgument arguments[] = {as_argument(args)...};
  return call_signature(kernel, std::span<const CallArgument>(arguments));
}

}  // namespace ringgrad
