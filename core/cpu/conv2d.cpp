// Convolution on the CPU. Channel-blocked images go to core/cpu/conv/, whose Winograd and direct kernels are the fast
// ones; strided images to im2col, which takes everything.
#include "ringgrad/core/cpu/conv/conv2d.h"
#include <atomic>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv2d_im2col.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/kernels/geometry.h"

namespace ringgrad {
namespace {

std::atomic<ConvAlgorithm> chosen_algorithm{ConvAlgorithm::Auto};

}  // namespace

const char* bfloat16_products() {
#if defined(__AVX512BF16__)
  return "in pairs (AVX512_BF16)";
#elif defined(RINGGRAD_EMULATE_BFLOAT16)
  return "in pairs, emulated";
#else
  return "as float32";
#endif
}

void set_conv_algorithm(ConvAlgorithm algorithm) { chosen_algorithm = algorithm; }
ConvAlgorithm conv_algorithm() { return chosen_algorithm; }

namespace cpu {
namespace {

conv::Conv2dGeometry geometry(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  const Shape &image = x.shape(), &filters = w.shape();
  return conv::conv2d_geometry(image[0], image[1], image[2], image[3], filters[0], filters[2], filters[3],
                               options.stride.h, options.padding.h);
}

conv::Algorithm algorithm(const conv::Conv2dGeometry& g) {
  const ConvAlgorithm wanted = conv_algorithm();
  if (wanted == ConvAlgorithm::Auto) return conv::fastest_algorithm(g);
  const bool winograd = wanted == ConvAlgorithm::Winograd && conv::supports(g, conv::Algorithm::Winograd);
  return winograd ? conv::Algorithm::Winograd : conv::Algorithm::Direct;
}

// Calls run.operator()<T>() with the type of blocked images.
template <class Run>
void visit_images(const Tensor& images, Run&& run) {
  images.dtype() == DType::BFloat16 ? run.template operator()<bfloat16>() : run.template operator()<float>();
}

void conv2d_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Conv2dOptions& options) {
  if (!y.is_channel_blocked()) return conv2d_im2col(stream, y, x, w, b, options);
  const conv::Conv2dGeometry g = geometry(x, w, options);
  const Tensor filters = in_dtype(w, DType::Float32), bias = in_dtype(b, DType::Float32);
  const float *const w_data = filters.data<float>(), *const b_data = bias.defined() ? bias.data<float>() : nullptr;
  visit_images(y, [&]<class T>() {
    if (x.is_channel_blocked())
      conv::forward(stream, g, algorithm(g), x.data<T>(), w_data, b_data, y.data<T>());
    else
      conv::forward_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), w_data, b_data, y.data<T>());
  });
}

void conv2d_backward_input_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                               const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_im2col_backward_input(stream, dx, dy, w, options);
  const conv::Conv2dGeometry g = geometry(dx, w, options);
  const Tensor filters = in_dtype(w, DType::Float32);
  visit_images(dy, [&]<class T>() {
    conv::backward_input(stream, g, algorithm(g), dy.data<T>(), filters.data<float>(), dx.data<T>());
  });
}

void conv2d_backward_weight_cpu(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_im2col_backward_weight(stream, dw, dy, x, options);
  if (is_16_bit(dw))
    return narrow_into(dw, [&](const Tensor& wide) { conv2d_backward_weight_cpu(stream, wide, dy, x, options); });
  const conv::Conv2dGeometry g = geometry(x, dw, options);
  visit_images(dy, [&]<class T>() {
    if (x.is_channel_blocked())
      conv::backward_weight(stream, g, algorithm(g), x.data<T>(), dy.data<T>(), dw.data<float>());
    else
      conv::backward_weight_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), dy.data<T>(), dw.data<float>());
  });
}

REGISTER_KERNEL(conv2d, DeviceType::CPU, Provider::Native, conv2d_cpu);
REGISTER_KERNEL(conv2d_backward_input, DeviceType::CPU, Provider::Native, conv2d_backward_input_cpu);
REGISTER_KERNEL(conv2d_backward_weight, DeviceType::CPU, Provider::Native, conv2d_backward_weight_cpu);

}  // namespace
}  // namespace cpu
}  // namespace ringgrad
