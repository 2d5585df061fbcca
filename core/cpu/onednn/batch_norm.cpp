// oneDNN's batch normalisation in training. The forward pass uses its fused ReLU. The backward pass
// does not use oneDNN's mask, because we derive it from y. So dy is rectified first, into dresidual
// if that is wanted.
#include "ringgrad/core/cpu/onednn/primitive.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"

namespace ringgrad::onednn {
namespace {

using dnnl::normalization_flags;

constexpr int kMostDims = 5;  // [N, C, D, H, W]

struct Passes {
  dnnl::memory::desc data;
  float eps;

  dnnl::batch_normalization_forward::primitive_desc forward(normalization_flags flags) const {
    return describe<dnnl::batch_normalization_forward>(std::tuple<>(),
                                                       dnnl::prop_kind::forward_training, data,
#if DNNL_VERSION_MAJOR >= 3
                                                       data,
#endif
                                                       eps, flags);
  }
  dnnl::batch_normalization_backward::primitive_desc backward(normalization_flags flags) const {
    return describe<dnnl::batch_normalization_backward>(std::make_tuple(forward(flags)),
                                                        dnnl::prop_kind::backward, data,
#if DNNL_VERSION_MAJOR >= 3
                                                        data,
#endif
                                                        data, eps, flags);
  }
};

bool batch_norm_onednn(Stream stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                       const Tensor& var, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& residual, double eps, bool relu,
                       const kernels::RunningStatistics& running) {
  if (!supports(x) || x.dim() > kMostDims || residual || positive) return false;
  auto flags = normalization_flags::none;
  if (weight) flags |= normalization_flags::use_scale;
  if (bias) flags |= normalization_flags::use_shift;
  if (relu) flags |= normalization_flags::fuse_norm_relu;
  const auto primitive =
      find(stream, call_signature("batch_norm", y, x, weight, bias, eps, relu), [&]() -> Primitive {
        const auto pass = Passes{description(x), static_cast<float>(eps)}.forward(flags);
        return {dnnl::batch_normalization_forward(pass), pass.scratchpad_desc(),
                pass.workspace_desc()};
      });
  if (!primitive) return false;
  const cpu::Workspace<char> mask(stream, static_cast<int64_t>(primitive->extra.get_size()));
  Arguments arguments = {{DNNL_ARG_SRC, as_memory(x)},
                         {DNNL_ARG_DST, as_memory(y)},
                         {DNNL_ARG_MEAN, as_memory(mean)},
                         {DNNL_ARG_VARIANCE, as_memory(var)}};
  if (weight) arguments.insert({DNNL_ARG_SCALE, as_memory(weight)});
  if (bias) arguments.insert({DNNL_ARG_SHIFT, as_memory(bias)});
  if (relu) arguments.insert({DNNL_ARG_WORKSPACE, memory(primitive->extra, engine(), mask.data())});
  execute(stream, *primitive, std::move(arguments));
  update_running(running, mean, var,
                 static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
  return true;
}

bool batch_norm_backward_onednn(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                const Tensor& dx, const Tensor& dresidual, const Tensor& dy,
                                const Tensor& x, const Tensor& y, const Tensor& mean,
                                const Tensor& var, const Tensor& weight, double eps) {
  if (!supports(x) || x.dim() > kMostDims || !weight || !dx || (y && y.dtype() == DType::UInt8))
    return false;
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  const auto primitive =
      find(stream, call_signature("batch_norm_backward", x, eps), [&]() -> Primitive {
        const auto pass = Passes{description(x), static_cast<float>(eps)}.backward(flags);
        return {dnnl::batch_normalization_backward(pass), pass.scratchpad_desc()};
      });
  if (!primitive) return false;
  const Tensor g = batch_norm_rectified(dresidual, dy, y);
  execute(stream, *primitive,
          {{DNNL_ARG_SRC, as_memory(x)},
           {DNNL_ARG_MEAN, as_memory(mean)},
           {DNNL_ARG_VARIANCE, as_memory(var)},
           {DNNL_ARG_DIFF_DST, as_memory(g)},
           {DNNL_ARG_SCALE, as_memory(weight)},
           {DNNL_ARG_SHIFT, as_memory(weight)},  // 2.x requires it, but does not read it
           {DNNL_ARG_DIFF_SRC, as_memory(dx)},
           {DNNL_ARG_DIFF_SCALE, as_memory(sum_dy_xhat)},
           {DNNL_ARG_DIFF_SHIFT, as_memory(sum_dy)}});
  return true;
}

REGISTER_KERNEL(batch_norm, CPU, Vendor, batch_norm_onednn);
REGISTER_KERNEL(batch_norm_backward, CPU, Vendor, batch_norm_backward_onednn);

}  // namespace
}  // namespace ringgrad::onednn
