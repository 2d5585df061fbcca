// THE CONTRACT of convolutions that also sum what batch norm needs, as in core/kernels.h, and the
// choice of when they are used. A convolution has its results in registers, so the sums cost no
// pass over memory.
#pragma once

#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace kernels {

#define KERNEL(name, arguments, ...) \
  inline constinit Kernel<void arguments __VA_OPT__(, ) __VA_ARGS__> name { #name }

// y = conv2d(x, w), without a bias. mean and var are batch_norm_stats() of y as it is stored, and
// the running statistics are updated as by batch_norm().
KERNEL(conv2d_batch_stats,
       (const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x, const Tensor& w,
        const Conv2dOptions& options, const RunningStatistics& running),
       kVendorToo);

// The gradient of a convolution whose images are y, the output of a batch norm of x:
//   g = conv2d_backward_input(dy, w, addend) where y > 0, else 0.
// sum_dy and sum_dy_xhat are batch_norm_backward_reduce() of g as it is stored. y may be the bits
// of batch_norm_apply(). Without relu it is undefined, and g is not rectified.
KERNEL(conv2d_backward_batch_sums,
       (const Tensor& g, const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dy,
        const Tensor& w, const Tensor& addend, const Tensor& x, const Tensor& y, const Tensor& mean,
        const Tensor& var, double eps, const Conv2dOptions& options));

#undef KERNEL

}  // namespace kernels

// The two as the contract's other kernels, one after the other. The bits are theirs. Devices
// without a kernel of their own register these.
void conv2d_batch_stats_in_steps(Stream, const Tensor& y, const Tensor& mean, const Tensor& var,
                                 const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                                 const kernels::RunningStatistics& running);
void conv2d_backward_batch_sums_in_steps(Stream, const Tensor& g, const Tensor& sum_dy,
                                         const Tensor& sum_dy_xhat, const Tensor& dy,
                                         const Tensor& w, const Tensor& addend, const Tensor& x,
                                         const Tensor& y, const Tensor& mean, const Tensor& var,
                                         double eps, const Conv2dOptions& options);

// Returns the gradient at the output before relu, for libraries that do not take y: dy where y > 0,
// or all of dy if y is undefined. Stores it in dresidual if that is defined.
Tensor batch_norm_rectified(const Tensor& dresidual, const Tensor& dy, const Tensor& y);

// Says when a convolution and the batch norm around it are computed together.
enum class Fusion : uint8_t {
  Never,
  WhereFaster,  // where the device has a kernel for it that is expected to be faster
  Always,       // everywhere, on most devices in steps: for tests
};
// The settings hold for the process. Change them while no other thread computes.
struct ConvBatchNormFusions {
  Fusion statistics = Fusion::WhereFaster;  // conv2d_batch_stats()
  Fusion gradients = Fusion::WhereFaster;   // conv2d_backward_batch_sums()
};
inline constinit ConvBatchNormFusions conv_batch_norm_fusions;

// Returns true if CUDA expects its kernel for the problem's pass to be faster than the steps. Null
// unless CUDA's kernels register it.
using FusesBatchNorm = bool (*)(Device device, const ConvProblem& problem);
inline constinit FusesBatchNorm cuda_fuses_batch_norm = nullptr;

// Returns true if the fusion of a pass is to be used on this device. BackwardInput asks for the
// gradients, Forward for the statistics.
bool fuses_batch_norm(Device device, const ConvProblem& problem);

}  // namespace ringgrad
