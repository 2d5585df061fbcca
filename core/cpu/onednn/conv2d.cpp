// oneDNN's convolutions. Channel-blocked images are its nChw16c, so only the filters are reordered.
#include "ringgrad/core/cpu/onednn/primitive.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"

namespace ringgrad::onednn {
namespace {

enum class Pass { Forward, BackwardInput, BackwardWeight };

// The arguments of a call: x and w stand for dx and dw in the backward passes, y for dy.
struct Call {
  Pass pass;
  const Tensor& x;
  const Tensor& w;
  const Tensor& y;
  Tensor bias;
  const Conv2dOptions& o;
};

// The filters' sizes in the tensor, and the format that the primitive may choose. Gradients are
// summed in float32, whatever the images' dtype.
memory::dims filter_sizes(const Call& c) {
  const Shape& s = c.w.shape();
  if (c.o.groups == 1) return {s[0], s[1], s[2], s[3]};
  return {c.o.groups, s[0] / c.o.groups, s[1], s[2], s[3]};
}
memory::desc plain_filters(const Call& c) {
  const auto tag = c.o.groups == 1 ? memory::format_tag::oihw : memory::format_tag::goihw;
  return {filter_sizes(c), data_type(c.w.dtype()), tag};
}
memory::desc any_filters(const Call& c, DType dtype) {
  return {filter_sizes(c), data_type(dtype), memory::format_tag::any};
}

Primitive make(const Call& c) {
  const auto algorithm = conv_algorithm() == ConvAlgorithm::Direct
                             ? dnnl::algorithm::convolution_direct
                             : dnnl::algorithm::convolution_auto;
  const Pair& stride = c.o.stride;
  const Pair& padding = c.o.padding;
  const Pair& dilation = c.o.dilation;
  const Shape& x = c.x.shape();
  const Shape& w = c.w.shape();
  const Shape& y = c.y.shape();
  const memory::dims strides = {stride.h, stride.w};
  const memory::dims gaps = {dilation.h - 1, dilation.w - 1};
  const memory::dims before = {padding.h, padding.w};
  const memory::dims after = {
      (y[2] - 1) * stride.h + dilation.h * (w[2] - 1) + 1 - x[2] - padding.h,
      (y[3] - 1) * stride.w + dilation.w * (w[3] - 1) + 1 - x[3] - padding.w};
  const memory::desc images = description(c.x);
  const memory::desc outputs = description(c.y);
  const memory::desc filters = any_filters(c, c.x.dtype());
  const memory::desc bias = c.bias.defined() ? description(c.bias) : memory::desc();
  const auto forward = describe<dnnl::convolution_forward>(
      std::tuple<>(), dnnl::prop_kind::forward_training, algorithm, images, filters, bias, outputs,
      strides, gaps, before, after);
  if (c.pass == Pass::Forward)
    return {dnnl::convolution_forward(forward), forward.scratchpad_desc(), forward.weights_desc()};
  if (c.pass == Pass::BackwardInput) {
    const auto backward = describe<dnnl::convolution_backward_data>(
        std::tie(forward), algorithm, images, filters, outputs, strides, gaps, before, after);
    return {dnnl::convolution_backward_data(backward), backward.scratchpad_desc(),
            backward.weights_desc()};
  }
  const auto backward = describe<dnnl::convolution_backward_weights>(
      std::tie(forward), algorithm, images, any_filters(c, DType::Float32), outputs, strides, gaps,
      before, after);
  return {dnnl::convolution_backward_weights(backward), backward.scratchpad_desc(),
          backward.diff_weights_desc()};
}

bool run(Stream stream, const std::string& signature, const Call& c) {
  if (!supports(c.x) || c.w.numel() == 0 || c.y.numel() == 0) return false;
  const std::shared_ptr<const Primitive> primitive =
      find(stream, signature, [&] { return make(c); });
  if (!primitive) return false;

  const memory plain(plain_filters(c), engine(), c.w.raw_data());
  const bool in_place = primitive->extra == plain.get_desc();
  const cpu::Workspace<char> chosen(
      stream, in_place ? 0 : static_cast<int64_t>(primitive->extra.get_size()));
  const memory filters = in_place ? plain : memory(primitive->extra, engine(), chosen.data());
  if (c.pass == Pass::BackwardWeight) {
    execute(stream, *primitive,
            {{DNNL_ARG_SRC, as_memory(c.x)},
             {DNNL_ARG_DIFF_WEIGHTS, filters},
             {DNNL_ARG_DIFF_DST, as_memory(c.y)}});
    if (!in_place) reorder(stream, filters, plain);
    return true;
  }
  if (!in_place) reorder(stream, plain, filters);
  if (c.pass == Pass::BackwardInput) {
    execute(stream, *primitive,
            {{DNNL_ARG_DIFF_SRC, as_memory(c.x)},
             {DNNL_ARG_WEIGHTS, filters},
             {DNNL_ARG_DIFF_DST, as_memory(c.y)}});
    return true;
  }
  Arguments arguments = {
      {DNNL_ARG_SRC, as_memory(c.x)}, {DNNL_ARG_WEIGHTS, filters}, {DNNL_ARG_DST, as_memory(c.y)}};
  if (c.bias.defined()) arguments.insert({DNNL_ARG_BIAS, as_memory(c.bias)});
  execute(stream, *primitive, std::move(arguments));
  return true;
}

bool conv2d_onednn(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
                   const Tensor& b, const Conv2dOptions& o) {
  return run(stream, call_signature("conv2d", y, x, w, b, o),
             {Pass::Forward, x, w, y, in_dtype(b, DType::Float32), o});
}
bool conv2d_backward_input_onednn(Stream stream, const Tensor& dx, const Tensor& dy,
                                  const Tensor& w, const Tensor& addend, const Conv2dOptions& o) {
  if (!run(stream, call_signature("conv2d_backward_input", dx, dy, w, o),
           {Pass::BackwardInput, dx, w, dy, {}, o}))
    return false;
  if (addend) kernels::add(dx, dx, addend);
  return true;
}
// Returns true if each position of the kernel meets the image in some window, and not only the
// padding.
bool meets_image(int64_t image, int64_t windows, int64_t kernel, int64_t stride, int64_t padding,
                 int64_t dilation) {
  for (int64_t r = 0; r < kernel; ++r) {
    // The image's begin, counted from the first window.
    const int64_t before = padding - r * dilation;
    const int64_t first = before > 0 ? (before + stride - 1) / stride : 0;
    if (first >= windows || first * stride >= before + image) return false;
  }
  return true;
}
bool conv2d_backward_weight_onednn(Stream stream, const Tensor& dw, const Tensor& dy,
                                   const Tensor& x, const Conv2dOptions& o) {
  // oneDNN's bfloat16 kernels leave the gradient of weights that meet only padding uninitialised.
  const Shape& image = x.shape();
  const Shape& kernel = dw.shape();
  const Shape& windows = dy.shape();
  if (x.dtype() == DType::BFloat16 &&
      !(meets_image(image[2], windows[2], kernel[2], o.stride.h, o.padding.h, o.dilation.h) &&
        meets_image(image[3], windows[3], kernel[3], o.stride.w, o.padding.w, o.dilation.w)))
    return false;
  return run(stream, call_signature("conv2d_backward_weight", dw, dy, x, o),
             {Pass::BackwardWeight, x, dw, dy, {}, o});
}

REGISTER_KERNEL(conv2d, CPU, Vendor, conv2d_onednn);
REGISTER_KERNEL(conv2d_backward_input, CPU, Vendor, conv2d_backward_input_onednn);
REGISTER_KERNEL(conv2d_backward_weight, CPU, Vendor, conv2d_backward_weight_onednn);

}  // namespace
}  // namespace ringgrad::onednn
