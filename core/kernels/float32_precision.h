// Sets the precision of float32 matrix products and convolutions. The names are torch's.
#pragma once

#include <string_view>

namespace ringgrad {

// Sets the precision. "highest" (the default) computes in float32. "high" and "medium" let NVIDIA's
// libraries convert factors to TF32, which keeps 10 of the 23 mantissa bits; sums stay float32. The
// setting applies to matrix products (cuBLAS) and, unlike in torch, also to convolutions (cuDNN).
// Torch has torch.backends.cudnn.allow_tf32 for convolutions, which is on by default. The CPU, our
// own CUDA kernels and the other dtypes never use TF32 and ignore the setting. It holds for the
// process, and is thread-safe. Throws Error on another word.
void set_float32_matmul_precision(std::string_view precision);
std::string_view get_float32_matmul_precision();

// Returns true if the setting is "high" or "medium".
bool allows_tf32();

}  // namespace ringgrad
