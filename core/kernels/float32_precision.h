// How exactly matrix products and convolutions of float32 are computed: torch's setting, by its name.
#pragma once

#include <string_view>

namespace ringgrad {

// "highest" (the default): in float32. "high" and "medium": NVIDIA's libraries may take their factors
// as TF32, of whose 23 bits behind the point 10 are left; sums stay float32. For products (cuBLAS) and,
// other than in torch, for convolutions, too (cuDNN; there it is torch.backends.cudnn.allow_tf32, and
// on by default). Ignored on the CPU and by our own CUDA kernels, which compute in float32 always, and
// by other dtypes. A setting of the process, thread-safe. Throws Error on another word.
void set_float32_matmul_precision(std::string_view precision);
std::string_view get_float32_matmul_precision();

// Whether that is "high" or "medium".
bool allows_tf32();

}  // namespace ringgrad
