// cuDNN's average pooling, beside ours in pool2d.cu. Its max pooling searches for the maximum again
// in backward, while our contract keeps its index; so it has no vendor implementation.
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

class Window : public Descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                                 cudnnDestroyPoolingDescriptor> {
 public:
  explicit Window(const Pool2dOptions& o) {
    const auto i = [](int64_t n) { return static_cast<int>(n); };
    done(cudnnSetPooling2dDescriptor(*this,
                                     o.count_padding ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
                                                     : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
                                     CUDNN_PROPAGATE_NAN, i(o.kernel.h), i(o.kernel.w),
                                     i(o.padding.h), i(o.padding.w), i(o.stride.h), i(o.stride.w)),
         "avg_pool2d", "cudnnSetPooling2dDescriptor");
  }
};

std::optional<cudnnTensorFormat_t> supported_format(const Tensor& y, const Tensor& x) {
  if (x.dtype() == DType::Float64 || x.numel() == 0) return std::nullopt;
  return common_format({x, y});
}

bool avg_pool2d_cudnn(Stream stream, const Tensor& y, const Tensor& x,
                      const Pool2dOptions& options) {
  const auto format = supported_format(y, x);
  if (!format) return false;
  const DeviceGuard guard(stream.device);
  const cudnnHandle_t handle = cudnn_handle("avg_pool2d", stream);
  if (!handle) return false;
  const Window window(options);
  const ImageDescriptor images(x.shape(), x.dtype(), *format),
      averages(y.shape(), y.dtype(), *format);
  const float one = 1;
  const float none = 0;
  return done(cudnnPoolingForward(handle, window, &one, images, x.raw_data(), &none, averages,
                                  y.raw_data()),
              "avg_pool2d", "cudnnPoolingForward");
}

bool avg_pool2d_backward_cudnn(Stream stream, const Tensor& dx, const Tensor& dy,
                               const Pool2dOptions& options) {
  const auto format = supported_format(dy, dx);
  if (!format) return false;
  const DeviceGuard guard(stream.device);
  const cudnnHandle_t handle = cudnn_handle("avg_pool2d_backward", stream);
  if (!handle) return false;
  const Window window(options);
  const ImageDescriptor images(dx.shape(), dx.dtype(), *format),
      averages(dy.shape(), dy.dtype(), *format);
  const float one = 1;
  const float none = 0;
  // y and x are required arguments, but are read for maxima only.
  return done(
      cudnnPoolingBackward(handle, window, &one, averages, dy.raw_data(), averages, dy.raw_data(),
                           images, dx.raw_data(), &none, images, dx.raw_data()),
      "avg_pool2d_backward", "cudnnPoolingBackward");
}

REGISTER_KERNEL(avg_pool2d, CUDA, Vendor, avg_pool2d_cudnn);
REGISTER_KERNEL(avg_pool2d_backward, CUDA, Vendor, avg_pool2d_backward_cudnn);

}  // namespace
}  // namespace ringgrad::cuda
