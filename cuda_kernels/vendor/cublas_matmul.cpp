// kernels::matmul by cuBLAS: the vendor's implementation, beside ours in matmul.cu.
//
// cuBLAS stores matrices by columns. c [M, N] by rows is cᵀ [N, M] by columns, and cᵀ = bᵀ · aᵀ. So
// b is its first operand and a its second, and neither is moved in memory. Whichever dimension has
// stride 1 decides whether an operand is transposed.
#include <cublas_v2.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/by_columns.h"
#include "ringgrad/cuda_kernels/vendor/thread_handles.h"

namespace ringgrad::cuda {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(str("matmul: ", call, " failed: ", cublasGetStatusString(status)));
}

// Returns nullptr if there is none (thread_handles.h).
cublasHandle_t handle_for(Stream stream) {
  thread_local ThreadHandles<cublasHandle_t> handles;
  const cublasHandle_t handle = handles.of(stream.device, "cuBLAS", [](cublasHandle_t* created) {
    cublasStatus_t status = cublasCreate(created);
    // Sums that are split among blocks are added in float32.
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasSetMathMode(*created, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return status == CUBLAS_STATUS_SUCCESS ? nullptr : cublasGetStatusString(status);
  });
  if (!handle) return nullptr;
  check(cublasSetStream(handle, native(stream)), "cublasSetStream");
  return handle;
}

// NVIDIA's recommendation for Hopper. It comes from our allocator, because a capture must not take
// memory from elsewhere.
constexpr size_t kWorkspace = size_t{32} << 20;

struct Types {
  cudaDataType_t element;
  cublasComputeType_t compute;
};
Types types_of(DType dtype) {
  switch (dtype) {
    case DType::Float64: return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::Float32:
      return {CUDA_R_32F, allows_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::BFloat16: return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    case DType::Float16: return {CUDA_R_16F, CUBLAS_COMPUTE_32F};
    default: throw_unsupported_dtype("matmul", dtype, "a floating dtype");
  }
}

// A batch of matrices for cuBLAS. If the layout does not suit, it is copied.
struct Operand {
  Tensor x;
  cublasOperation_t op;
  int64_t leading;

  explicit Operand(const Tensor& given) : x(by_columns(given) ? given : as_contiguous(given)) {
    const ByColumns how = *by_columns(x);
    op = how.is_itself ? CUBLAS_OP_T : CUBLAS_OP_N;
    leading = how.leading;
  }
};

bool matmul_cublas(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                   const Tensor& bias) {
  ASSERT(c.is_contiguous() && c.dim() == 3 && a.shape()[2] == b.shape()[1]);
  if (c.numel() == 0 || a.numel() == 0) return false;
  const DeviceGuard guard(stream.device);
  const cublasHandle_t handle = handle_for(stream);
  if (!handle) return false;
  const Tensor workspace = empty({static_cast<int64_t>(kWorkspace)}, {DType::UInt8, stream.device});
  check(cublasSetWorkspace(handle, workspace.raw_data(), kWorkspace), "cublasSetWorkspace");
  if (bias)
    kernels::copy(c, bias.as_strided(c.shape(), {0, 0, bias.strides()[0]}, bias.storage_offset()));
  const auto [element, compute] = types_of(c.dtype());
  const Operand first(b), second(a);
  const bool wide = c.dtype() == DType::Float64;
  const double one = 1;
  const double keep = bias.defined() ? 1 : 0;
  const float one32 = 1;
  const float keep32 = bias.defined() ? 1 : 0;
  const void* const alpha = wide ? static_cast<const void*>(&one) : &one32;
  const void* const beta = wide ? static_cast<const void*>(&keep) : &keep32;
  const int64_t M = c.shape()[1];
  const int64_t N = c.shape()[2];
  const int64_t K = a.shape()[2];
  check(cublasGemmStridedBatchedEx_64(
            handle, first.op, second.op, N, M, K, alpha, first.x.raw_data(), element, first.leading,
            first.x.strides()[0], second.x.raw_data(), element, second.leading,
            second.x.strides()[0], beta, c.raw_data(), element, N, c.strides()[0], c.shape()[0],
            compute, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx_64");
  return true;
}

BEFORE_MAIN(cublas,
            add_vendor_library(DeviceType::CUDA, str("cuBLAS ", CUBLAS_VER_MAJOR, ".",
                                                     CUBLAS_VER_MINOR, ".", CUBLAS_VER_PATCH)));
REGISTER_KERNEL(matmul, CUDA, Vendor, matmul_cublas);

}  // namespace
}  // namespace ringgrad::cuda
