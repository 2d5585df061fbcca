// cuDNN's batch normalisation in training, forward with ReLU and residual in the same graph, beside
// ours in batch_norm.cu. Its engines are compiled at run time; without a GPU they are only listed
// (tests/cuda/cudnn_plans_test.cpp).
//
// In backward a kernel of ours computes ReLU's gradient first. cuDNN 9.19 has an engine for both in
// one, but it reads the mask from memory, even if the graph computes it from y: from address 0.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"
#include "ringgrad/cuda_kernels/runtime/deviations.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_norm_graph.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_plans.h"

namespace ringgrad::cuda {
namespace {

// Numbers for a graph, with the alignment that it requires of addresses.
struct alignas(kGraphAlignment) Number {
  float value;
};

bool is_supported(const Tensor& x) {
  return x.dtype() != DType::Float64 && x.dim() == 4 && x.numel() > 0;
}

bool batch_norm_cudnn(Stream stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                      const Tensor& var, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& residual, double eps, bool relu,
                      const kernels::RunningStatistics& running) {
  if (!is_supported(x) || !weight || !bias || positive) return false;
  for (const Tensor& kept : {running.mean, running.var})
    if (kept && !kept.is_contiguous()) return false;
  const auto format = common_format({x, y, residual});
  if (!format) return false;
  const DeviceGuard guard(stream.device);
  Number epsilon{static_cast<float>(eps)};
  std::vector<void*> addresses = {x.raw_data(),   y.raw_data(),      mean.raw_data(),
                                  var.raw_data(), weight.raw_data(), bias.raw_data(),
                                  &epsilon};
  if (residual) addresses.push_back(residual.raw_data());
  const auto graph = [&] {
    return batch_norm_graph({x.shape(), x.dtype(), *format}, residual.defined(), relu);
  };
  if (!run_fastest(stream, "batch_norm", call_signature("batch_norm", x, residual, relu), x.dtype(),
                   graph, addresses))
    return false;
  variances_of(stream, var, mean, eps, running,
               static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
  return true;
}

bool batch_norm_backward_cudnn(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                               const Tensor& dx, const Tensor& dresidual, const Tensor& dy,
                               const Tensor& x, const Tensor& y, const Tensor& mean,
                               const Tensor& var, const Tensor& weight, double eps) {
  if (!is_supported(x) || !weight || !dx) return false;
  if (y && y.dtype() == DType::UInt8) return false;  // bits of batch_norm_positive()
  const auto format = common_format({x, dx, dy, y, dresidual});
  if (!format) return false;
  const DeviceGuard guard(stream.device);
  const Tensor rstd = empty_like(var);
  rstd_of(stream, rstd, var, eps);
  const Tensor g = batch_norm_rectified(dresidual, dy, y);
  void* const addresses[] = {x.raw_data(),           g.raw_data(),     dx.raw_data(),
                             mean.raw_data(),        rstd.raw_data(),  weight.raw_data(),
                             sum_dy_xhat.raw_data(), sum_dy.raw_data()};
  const auto graph = [&] { return batch_norm_backward_graph({x.shape(), x.dtype(), *format}); };
  return run_fastest(stream, "batch_norm_backward", call_signature("batch_norm_backward", x),
                     x.dtype(), graph, addresses);
}

REGISTER_KERNEL(batch_norm, CUDA, Vendor, batch_norm_cudnn);
REGISTER_KERNEL(batch_norm_backward, CUDA, Vendor, batch_norm_backward_cudnn);

}  // namespace
}  // namespace ringgrad::cuda
