// Sets the precision of float32 matrix products and convolutions. The setting has the name that it
// has in torch.
#pragma once

#include <string_view>

namespace ringgrad {

// Sets the precision. "highest" (the default) computes in float32. With "high" and "medium",
// NVIDIA's libraries may convert factors to TF32, which keeps 10 of the 23 bits behind the point;
// sums stay float32. The setting is for products (cuBLAS) and, other than in torch, also for
// convolutions (cuDNN; torch has torch.backends.cudnn.allow_tf32 for them, which is on by default).
// The CPU, our own CUDA kernels and the other dtypes ignore it: they never use TF32. It is a
// setting of the process, and thread-safe. Throws Error on another word.
void set_float32_matmul_precision(std::string_view precision);
std::string_view get_float32_matmul_precision();

// Returns true if the setting is "high" or "medium".
bool allows_tf32();

}  // namespace ringgrad
