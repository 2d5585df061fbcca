// A kernel call in words: everything that its speed depends on, and nothing else. The key under
// which autotune remembers which provider is faster, and vendor libraries' primitives are kept.
#pragma once

#include <string>

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

// "conv2d float32[64,16,32,32] float32[64,3,32,32] float32[16,3,3,3] - 1x1 1x1 1x1 1": of a tensor
// dtype, shape and, where it is not contiguous, how it lies; "-" for an undefined one; numbers and
// options as they are.
std::string call_signature(const char* kernel, std::span<const CallArgument> arguments);

// Of arguments that are no call's: tensors, numbers and options.
template <class... Args>
std::string call_signature(const char* kernel, const Args&... args) {
  const CallArgument arguments[] = {as_argument(args)...};
  return call_signature(kernel, std::span<const CallArgument>(arguments));
}

}  // namespace ringgrad
