// cuDNN's batch normalisation in training, beside ours in batch_norm.cu. Not yet run on a GPU.
//
// Forward, the residual and the ReLU are fused where cuDNN can (float16, NHWC). Backward, cuDNN would want the mask
// that it wrote then; we take it from y, so dy is rectified first, into dresidual where that is wanted.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

using ActivationDescriptor =
    Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor>;

bool is_supported(const Tensor& x) { return x.dtype() != DType::Float64 && x.dim() == 4 && x.numel() > 0; }

// One pass over channels-last images is what the persistent kernels are made for.
cudnnBatchNormMode_t mode_for(cudnnTensorFormat_t format) {
  return format == CUDNN_TENSOR_NHWC ? CUDNN_BATCHNORM_SPATIAL_PERSISTENT : CUDNN_BATCHNORM_SPATIAL;
}

// All that is per channel: float32 [1, C, 1, 1].
ImageDescriptor per_channel(const Tensor& x) {
  return ImageDescriptor({1, x.size(1), 1, 1}, DType::Float32, CUDNN_TENSOR_NCHW);
}

bool batch_norm_cudnn(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                      const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps, bool relu,
                      const kernels::RunningStatistics& running) {
  const auto format = residual ? common_format({x, y, residual}) : common_format({x, y});
  if (!is_supported(x) || !format || !weight || !bias || (residual && !relu)) return false;
  const DeviceGuard guard(stream.device);
  const cudnnHandle_t handle = cudnn_handle("batch_norm", stream);
  if (!handle) return false;
  const cudnnBatchNormMode_t mode = mode_for(*format);
  const cudnnBatchNormOps_t ops = residual ? CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
                                  : relu   ? CUDNN_BATCHNORM_OPS_BN_ACTIVATION
                                           : CUDNN_BATCHNORM_OPS_BN;
  const ImageDescriptor images(x.shape(), x.dtype(), *format), channels = per_channel(x);
  const ActivationDescriptor rectifier;
  done(cudnnSetActivationDescriptor(rectifier, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0), "batch_norm",
       "cudnnSetActivationDescriptor");
  const cudnnActivationDescriptor_t activation = relu ? static_cast<cudnnActivationDescriptor_t>(rectifier) : nullptr;
  const cudnnTensorDescriptor_t added = residual ? static_cast<cudnnTensorDescriptor_t>(images) : nullptr;
  size_t workspace_bytes = 0, mask_bytes = 0;
  if (!done(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle, mode, ops, images, added, images, channels,
                                                                     activation, &workspace_bytes),
            "batch_norm", "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize") ||
      !done(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, mode, ops, activation, images, &mask_bytes),
            "batch_norm", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize"))
    return false;
  const Tensor workspace = cudnn_workspace(stream, workspace_bytes), mask = cudnn_workspace(stream, mask_bytes);
  const float one = 1, none = 0;
  if (!done(cudnnBatchNormalizationForwardTrainingEx(
                handle, mode, ops, &one, &none, images, x.raw_data(), added, residual ? residual.raw_data() : nullptr,
                images, y.raw_data(), channels, weight.raw_data(), bias.raw_data(), 1, nullptr, nullptr, eps,
                mean.raw_data(), var.raw_data(), activation, workspace.raw_data(), workspace_bytes, mask.raw_data(),
                mask_bytes),
            "batch_norm", "cudnnBatchNormalizationForwardTrainingEx"))
    return false;
  kernels::pow(var, var, -2);  // it holds 1 / sqrt(var + eps)
  kernels::affine(var, var, 1, -eps);
  update_running(running, mean, var, static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
  return true;
}

bool batch_norm_backward_cudnn(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx,
                               const Tensor& dresidual, const Tensor& dy, const Tensor& x, const Tensor& y,
                               const Tensor& mean, const Tensor& var, const Tensor& weight, double eps) {
  if (!is_supported(x) || !weight || !dx) return false;
  const auto format = common_format({x, dx, dy});
  if (!format) return false;
  const DeviceGuard guard(stream.device);
  const cudnnHandle_t handle = cudnn_handle("batch_norm_backward", stream);
  if (!handle) return false;
  const cudnnBatchNormMode_t mode = mode_for(*format);
  const ImageDescriptor images(x.shape(), x.dtype(), *format), channels = per_channel(x);
  size_t workspace_bytes = 0, kept_bytes = 0;  // what forward would have to keep for backward: we keep nothing
  if (!done(cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle, mode, CUDNN_BATCHNORM_OPS_BN, images, nullptr,
                                                              images, nullptr, images, channels, nullptr,
                                                              &workspace_bytes),
            "batch_norm_backward", "cudnnGetBatchNormalizationBackwardExWorkspaceSize") ||
      !done(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, mode, CUDNN_BATCHNORM_OPS_BN, nullptr, images,
                                                                 &kept_bytes),
            "batch_norm_backward", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize") ||
      kept_bytes > 0)
    return false;
  const Tensor workspace = cudnn_workspace(stream, workspace_bytes);
  const Tensor g = batch_norm_rectified(dresidual, dy, y);
  const Tensor rstd = empty_like(var);
  kernels::affine(rstd, var, 1, eps);
  kernels::pow(rstd, rstd, -0.5);
  const float one = 1, none = 0;
  return done(cudnnBatchNormalizationBackwardEx(
                  handle, mode, CUDNN_BATCHNORM_OPS_BN, &one, &none, &one, &none, images, x.raw_data(), nullptr,
                  nullptr, images, g.raw_data(), nullptr, nullptr, images, dx.raw_data(), channels, weight.raw_data(),
                  nullptr, sum_dy_xhat.raw_data(), sum_dy.raw_data(), eps, mean.raw_data(), rstd.raw_data(), nullptr,
                  workspace.raw_data(), workspace_bytes, nullptr, 0),
              "batch_norm_backward", "cudnnBatchNormalizationBackwardEx");
}

REGISTER_KERNEL(batch_norm, DeviceType::CUDA, Provider::Vendor, batch_norm_cudnn);
REGISTER_KERNEL(batch_norm_backward, DeviceType::CUDA, Provider::Vendor, batch_norm_backward_cudnn);

}  // namespace
}  // namespace ringgrad::cuda
