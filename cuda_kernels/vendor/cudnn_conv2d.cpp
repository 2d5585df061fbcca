// cuDNN's convolutions, beside ours in conv2d.cu. Plans are checked without a GPU
// (tests/cuda/cudnn_plans_test.cpp).
//
// Of the plans that keep our guarantees (cudnn_graph.h) the fastest on this device runs, and
// autotune measures it against our kernel. Two of cuDNN's fusions are not used. The first is batch
// norm's sums after a convolution, whose variance would come from a sum of squares. That is
// imprecise in float32 if the mean is large. The second is ReLU's gradient after dx. Our
// ReLUs belong to batch norm, whose backward includes it (cudnn_batch_norm.cpp). A separate ReLU
// node would have to know that its gradient has already been computed.
#include <climits>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"
#include "ringgrad/cuda_kernels/batch_norm.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_conv_graph.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_plans.h"

namespace ringgrad::cuda {
namespace {

bool fits_int(const Tensor& x) { return x.numel() > 0 && x.numel() <= INT_MAX; }

// Returns the filters in the dtype and format of the images: w itself if it has them, else a copy
// or empty memory for one.
Tensor filters_for(const Tensor& w, DType dtype, cudnnTensorFormat_t format) {
  const bool nhwc = format == CUDNN_TENSOR_NHWC;
  if (w.dtype() == dtype && (nhwc ? w.is_channels_last() : w.is_contiguous())) return w;
  return empty(w.shape(), {dtype, w.device(), nhwc ? Layout::ChannelsLast : Layout::Strided});
}

// Runs a pass over x, w and y, or their gradients, if cuDNN has a plan for it.
bool convolve(Stream stream, const char* operation, ConvPass pass, const Tensor& x, const Tensor& w,
              const Tensor& y, const Conv2dOptions& options) {
  const auto format = common_format({x, y});
  if (!format || !fits_int(x) || !fits_int(y) || !fits_int(w)) return false;
  const DeviceGuard guard(stream.device);
  const bool writes_filters = pass == ConvPass::BackwardWeight;
  const Tensor filters = filters_for(w, x.dtype(), *format);
  if (!writes_filters && !filters.is_same(w)) kernels::copy(filters, w);
  void* const addresses[] = {x.raw_data(), filters.raw_data(), y.raw_data()};
  const bool ran = run_fastest(
      stream, operation, call_signature(operation, x, filters, y, options), x.dtype(),
      [&] {
        return conv2d_graph(pass, {x.dtype(), *format, x.shape(), w.shape(), y.shape(), options});
      },
      addresses);
  if (ran && writes_filters && !filters.is_same(w)) kernels::copy(w, filters);
  return ran;
}

bool conv2d_cudnn(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                  const Conv2dOptions& options) {
  if (!convolve(stream, "conv2d", ConvPass::Forward, x, w, y, options)) return false;
  if (b) {
    const Tensor bias = in_dtype(b, y.dtype());
    kernels::add(y, y,
                 bias.as_strided(y.shape(), {0, bias.strides()[0], 0, 0}, bias.storage_offset()));
  }
  return true;
}

bool conv2d_batch_stats_cudnn(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& var,
                              const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                              const kernels::RunningStatistics& running) {
  if (!convolve(stream, "conv2d", ConvPass::Forward, x, w, y, options)) return false;
  batch_statistics(stream, mean, var, y, {}, running);
  return true;
}

bool conv2d_backward_input_cudnn(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                 const Tensor& addend, const Conv2dOptions& options) {
  if (!convolve(stream, "conv2d_backward_input", ConvPass::BackwardInput, dx, w, dy, options))
    return false;
  if (addend) kernels::add(dx, dx, addend);
  return true;
}

bool conv2d_backward_weight_cudnn(Stream stream, const Tensor& dw, const Tensor& dy,
                                  const Tensor& x, const Conv2dOptions& options) {
  return convolve(stream, "conv2d_backward_weight", ConvPass::BackwardWeight, x, dw, dy, options);
}

REGISTER_KERNEL(conv2d, CUDA, Vendor, conv2d_cudnn);
REGISTER_KERNEL(conv2d_batch_stats, CUDA, Vendor, conv2d_batch_stats_cudnn);
REGISTER_KERNEL(conv2d_backward_input, CUDA, Vendor, conv2d_backward_input_cudnn);
REGISTER_KERNEL(conv2d_backward_weight, CUDA, Vendor, conv2d_backward_weight_cudnn);

}  // namespace
}  // namespace ringgrad::cuda
