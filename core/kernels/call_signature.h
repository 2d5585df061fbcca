// A kernel call in words: everything that its speed depends on, and nothing else. The key under
// which autotune remembers which provider is faster, and vendor libraries' primitives are kept.
#pragma once

#include <string>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

// "conv2d float32[64,16,32,32] float32[64,3,32,32] float32[16,3,3,3] - 1x1 1x1 1x1 1": of a tensor
// dtype, shape and, where it is not contiguous, how it lies; "-" for an undefined one; numbers and
// options as they are.
class CallSignature {
 public:
  explicit CallSignature(const char* kernel);

  CallSignature& operator<<(const Tensor& x);
  CallSignature& operator<<(int64_t value);
  CallSignature& operator<<(double value);
  CallSignature& operator<<(bool value);
  CallSignature& operator<<(Pair value);
  CallSignature& operator<<(const Conv2dOptions& options);
  CallSignature& operator<<(const Pool2dOptions& options);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <class... Args>
std::string call_signature(const char* kernel, const Args&... args) {
  CallSignature signature(kernel);
  (signature << ... << args);
  return signature.text();
}

}  // namespace ringgrad
