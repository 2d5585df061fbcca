// oneDNN's average pooling.
#include "ringgrad/core/cpu/onednn/primitive.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"

namespace ringgrad::onednn {
namespace {

// The descriptors of both passes take the same window. 3.x also has a dilation, which counts from
// 0.
struct Window {
  dnnl::algorithm algorithm;
  memory::dims strides;
  memory::dims kernel;
  memory::dims before;
  memory::dims after;

  Window(const Tensor& y, const Tensor& x, const Pool2dOptions& o)
      : algorithm(o.count_padding ? dnnl::algorithm::pooling_avg_include_padding
                                  : dnnl::algorithm::pooling_avg_exclude_padding),
        strides{o.stride.h, o.stride.w},
        kernel{o.kernel.h, o.kernel.w},
        before{o.padding.h, o.padding.w},
        after{(y.size(2) - 1) * o.stride.h + o.kernel.h - x.size(2) - o.padding.h,
              (y.size(3) - 1) * o.stride.w + o.kernel.w - x.size(3) - o.padding.w} {}

  dnnl::pooling_forward::primitive_desc forward(const Tensor& y, const Tensor& x) const {
    return describe<dnnl::pooling_forward>(std::tuple<>(), dnnl::prop_kind::forward_training,
                                           algorithm, description(x), description(y), strides,
                                           kernel,
#if DNNL_VERSION_MAJOR >= 3
                                           memory::dims{0, 0},
#endif
                                           before, after);
  }
  dnnl::pooling_backward::primitive_desc backward(const Tensor& dy, const Tensor& dx) const {
    return describe<dnnl::pooling_backward>(std::make_tuple(forward(dy, dx)), algorithm,
                                            description(dx), description(dy), strides, kernel,
#if DNNL_VERSION_MAJOR >= 3
                                            memory::dims{0, 0},
#endif
                                            before, after);
  }
};

bool avg_pool2d_onednn(Stream stream, const Tensor& y, const Tensor& x, const Pool2dOptions& o) {
  if (!supports(x) || !supports(y)) return false;
  const auto primitive = find(stream, call_signature("avg_pool2d", y, x, o), [&]() -> Primitive {
    const auto pass = Window(y, x, o).forward(y, x);
    return {dnnl::pooling_forward(pass), pass.scratchpad_desc()};
  });
  if (!primitive) return false;
  execute(stream, *primitive, {{DNNL_ARG_SRC, as_memory(x)}, {DNNL_ARG_DST, as_memory(y)}});
  return true;
}

bool avg_pool2d_backward_onednn(Stream stream, const Tensor& dx, const Tensor& dy,
                                const Pool2dOptions& o) {
  if (!supports(dx) || !supports(dy)) return false;
  const auto primitive =
      find(stream, call_signature("avg_pool2d_backward", dx, dy, o), [&]() -> Primitive {
        const auto pass = Window(dy, dx, o).backward(dy, dx);
        return {dnnl::pooling_backward(pass), pass.scratchpad_desc()};
      });
  if (!primitive) return false;
  execute(stream, *primitive,
          {{DNNL_ARG_DIFF_DST, as_memory(dy)}, {DNNL_ARG_DIFF_SRC, as_memory(dx)}});
  return true;
}

REGISTER_KERNEL(avg_pool2d, CPU, Vendor, avg_pool2d_onednn);
REGISTER_KERNEL(avg_pool2d_backward, CPU, Vendor, avg_pool2d_backward_onednn);

}  // namespace
}  // namespace ringgrad::onednn
