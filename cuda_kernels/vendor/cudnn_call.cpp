#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

#include <algorithm>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/thread_handles.h"

namespace ringgrad::cuda {
namespace {

BEFORE_MAIN(cudnn, add_vendor_library(DeviceType::CUDA, str("cuDNN ", CUDNN_MAJOR, ".", CUDNN_MINOR,
                                                            ".", CUDNN_PATCHLEVEL)));

}  // namespace

bool done(cudnnStatus_t status, const char* operation, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  // The older interfaces return either if they have no kernel.
  const auto category = CUDNN_STATUS_CATEGORY(status);
  if (category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM) return false;
  throw CudaError(str(operation, ": ", call, " failed: ", cudnnGetErrorString(status)));
}

cudnnHandle_t cudnn_handle(const char* operation, Stream stream) {
  thread_local ThreadHandles<cudnnHandle_t> handles;
  const cudnnHandle_t handle = handles.of(stream.device, "cuDNN", [](cudnnHandle_t* created) {
    const cudnnStatus_t status = cudnnCreate(created);
    return status == CUDNN_STATUS_SUCCESS ? nullptr : cudnnGetErrorString(status);
  });
  if (!handle) return nullptr;
  done(cudnnSetStream(handle, native(stream)), operation, "cudnnSetStream");
  return handle;
}

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::Float64: return CUDNN_DATA_DOUBLE;
    case DType::Float32: return CUDNN_DATA_FLOAT;
    case DType::BFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::Float16: return CUDNN_DATA_HALF;
    default: throw_unsupported_dtype("cudnn", dtype, "a floating dtype");
  }
}

std::optional<cudnnTensorFormat_t> common_format(std::initializer_list<Tensor> images) {
  const auto all = [&](auto holds) {
    return std::all_of(images.begin(), images.end(),
                       [&](const Tensor& x) { return !x || holds(x); });
  };
  if (all([](const Tensor& x) { return x.is_channels_last(); })) return CUDNN_TENSOR_NHWC;
  if (all([](const Tensor& x) { return x.is_contiguous(); })) return CUDNN_TENSOR_NCHW;
  return {};
}

ImageDescriptor::ImageDescriptor(const Shape& nchw, DType dtype, cudnnTensorFormat_t format) {
  const Strides strides =
      format == CUDNN_TENSOR_NHWC ? channels_last_strides(nchw) : contiguous_strides(nchw);
  const auto size = [&](int d) { return static_cast<int>(nchw[d]); };
  const auto stride = [&](int d) { return static_cast<int>(strides[d]); };
  done(cudnnSetTensor4dDescriptorEx(*this, cudnn_type(dtype), size(0), size(1), size(2), size(3),
                                    stride(0), stride(1), stride(2), stride(3)),
       "cudnn", "cudnnSetTensor4dDescriptorEx");
}

Tensor cudnn_workspace(Stream stream, size_t bytes) {
  return empty({static_cast<int64_t>(bytes)}, {DType::UInt8, stream.device});
}

}  // namespace ringgrad::cuda
