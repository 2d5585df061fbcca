// Convolution on the CPU. Channel-blocked images go to core/cpu/conv/, whose Winograd and direct kernels are the fast
// ones; strided images to im2col, which takes everything.
#include <atomic>

#include "ringgrad/core/cpu/conv/convolve.h"
#include "ringgrad/core/cpu/conv2d_im2col.h"
#include "ringgrad/core/cpu/widen.h"

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

using conv::Direction;

conv::Conv2dGeometry geometry(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  const Shape &image = x.shape(), &filters = w.shape();
  return conv::conv2d_geometry(image[0], image[1], image[2], image[3], filters[0], filters[2], filters[3],
                               options.stride.h, options.padding.h);
}

// As the process wants it, where there is such a one.
ConvAlgorithm algorithm(const conv::Conv2dGeometry& g) {
  const ConvAlgorithm wanted = conv_algorithm();
  return wanted == ConvAlgorithm::Winograd && !conv::has_winograd(g) ? ConvAlgorithm::Direct : wanted;
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
      conv::convolve(stream, g, algorithm(g), Direction::Forward, x.data<T>(), w_data, b_data, y.data<T>());
    else
      conv::convolve_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), w_data, b_data, y.data<T>());
  });
}

void conv2d_backward_input_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                               const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_im2col_backward_input(stream, dx, dy, w, options);
  const conv::Conv2dGeometry g = geometry(dx, w, options);
  const Tensor filters = in_dtype(w, DType::Float32);
  visit_images(dy, [&]<class T>() {
    conv::convolve(stream, g, algorithm(g), Direction::BackwardInput, dy.data<T>(), filters.data<float>(), nullptr,
                   dx.data<T>());
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
      conv::weight_gradient(stream, g, algorithm(g), x.data<T>(), dy.data<T>(), dw.data<float>());
    else
      conv::weight_gradient_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), dy.data<T>(), dw.data<float>());
  });
}

REGISTER_KERNEL(conv2d, DeviceType::CPU, Provider::Native, conv2d_cpu);
REGISTER_KERNEL(conv2d_backward_input, DeviceType::CPU, Provider::Native, conv2d_backward_input_cpu);
REGISTER_KERNEL(conv2d_backward_weight, DeviceType::CPU, Provider::Native, conv2d_backward_weight_cpu);

}  // namespace
}  // namespace cpu
}  // namespace ringgrad
