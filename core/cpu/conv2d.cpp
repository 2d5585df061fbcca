// Convolution on the CPU. Channel-blocked images go to core/cpu/conv/, whose Winograd and direct kernels are the fast
// ones. Contiguous NCHW images are cut into strips of im2col that fit the second-level cache, and multiplied: that is
// the definition which the fast ones are tested against, and it takes any floating dtype, stride, dilation and group.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv/convolve.h"
#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::cpu {
namespace {

// ---- contiguous images: im2col --------------------------------------------------------------------------------------

ConvShape conv_shape(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o) {
  ASSERT(x.is_contiguous() && w.is_contiguous() && y.is_contiguous());
  ASSERT(x.dtype() == w.dtype() && x.dtype() == y.dtype() && x.shape()[1] == w.shape()[1] * o.groups);
  return {.n = x.shape()[0],
          .groups = o.groups,
          .c = w.shape()[1],
          .h = x.shape()[2],
          .w = x.shape()[3],
          .k = w.shape()[0] / o.groups,
          .r = w.shape()[2],
          .s = w.shape()[3],
          .p = y.shape()[2],
          .q = y.shape()[3],
          .stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation};
}

// The pixels of one strip in y (or dy) [n, filters, p, q], for the filters of one group, as a matrix [k, pixels]:
// inside the tensor where the strip lies in one image, else a packed one.
template <class T>
Matrix<T> strip_of_y(const ConvShape& shape, const Strip& strip, int64_t group, T* y, T* packed) {
  const int64_t pixels = strip.pixels(shape);
  if (strip.images > 1) return {packed, shape.k, pixels, pixels};
  T* const first = y + ((strip.image * shape.groups + group) * shape.k * shape.p + strip.row) * shape.q;
  return {first, shape.k, pixels, shape.p * shape.q};
}
// Between the two, copy(packed, tensor, elements) for the segment of each filter and image. Only for packed matrices.
template <class T, class Copy>
void for_each_segment(const ConvShape& shape, const Strip& strip, int64_t group, T* y, T* packed, Copy&& copy) {
  if (strip.images == 1) return;
  const int64_t segment = shape.p * shape.q;
  for (int64_t k = 0; k < shape.k; ++k)
    for (int64_t i = strip.image; i < strip.image + strip.images; ++i, packed += segment)
      copy(packed, y + ((i * shape.groups + group) * shape.k + k) * segment, segment);
}
template <class T>
void gather(T* packed, const T* y, int64_t n) {
  std::memcpy(packed, y, n * sizeof(T));
}
template <class T>
void scatter(const T* packed, T* y, int64_t n) {
  std::memcpy(y, packed, n * sizeof(T));
}

// im2col without the copy, for a pointwise convolution: channels [first, first + channels) in a strip of one image.
template <class T>
Matrix<T> strip_of_x(const ConvShape& shape, const Strip& strip, int64_t first, int64_t channels, T* x) {
  T* const pixel = x + ((strip.image * shape.groups * shape.c + first) * shape.h + strip.row) * shape.w;
  return {pixel, channels, strip.pixels(shape), shape.h * shape.w};
}

template <class T>
Matrix<T> filters_of(const ConvShape& shape, int64_t group, T* w) {
  return {w + group * shape.k * shape.depth(), shape.k, shape.depth(), shape.depth()};
}

void conv2d_im2col(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                   const Conv2dOptions& options) {
  if (y.numel() == 0) return;
  if (is_16_bit(y))
    return narrow_into(y,
                       [&](const Tensor& wide) { conv2d_im2col(stream, wide, widen(x), widen(w), widen(b), options); });
  const ConvShape shape = conv_shape(x, w, y, options);
  const Strips strips(shape);
  const bool in_place = shape.is_pointwise() && strips.images == 1;
  visit_wide("conv2d", y.dtype(), [&]<class T>() {
    T* const x_data = x.data<T>();
    T* const y_data = y.data<T>();
    parallel_for(stream, shape.groups * strips.count, 1, [&](int64_t unit, int64_t) {
      const int64_t group = unit / strips.count, depth = shape.depth();
      const Strip strip = strips(shape, unit % strips.count);
      const int64_t pixels = strip.pixels(shape);
      const Workspace<T> col(stream, in_place ? 0 : depth * pixels);
      const Workspace<T> packed(stream, strip.images > 1 ? shape.k * pixels : 0);
      if (!in_place) im2col(shape, strip, group * shape.c, shape.c, col.data(), x_data);
      const Matrix<T> seen = in_place ? strip_of_x(shape, strip, group * shape.c, shape.c, x_data)
                                      : Matrix<T>{col.data(), depth, pixels, pixels};
      const Matrix<T> out = strip_of_y(shape, strip, group, y_data, packed.data());
      for (int64_t k = 0; k < shape.k; ++k)
        std::fill_n(out.at(k, 0), pixels, b.defined() ? b.data<T>()[group * shape.k + k] : T{0});
      add_product(out, filters_of(shape, group, w.data<T>()), seen);
      for_each_segment(shape, strip, group, y_data, packed.data(), scatter<T>);
    });
  });
}

// A unit owns whole images, because the strips of one image overlap in dx.
void conv2d_im2col_backward_input(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  const Tensor& addend, const Conv2dOptions& options) {
  if (dx.numel() == 0) return;
  if (is_16_bit(dx))
    return narrow_into(dx, [&](const Tensor& wide) {
      conv2d_im2col_backward_input(stream, wide, widen(dy), widen(w), widen(addend), options);
    });
  const ConvShape shape = conv_shape(dx, w, dy, options);
  const Strips strips(shape);
  const bool in_place = shape.is_pointwise() && strips.images == 1;
  const int64_t blocks = ceil_div(shape.n, strips.images), channels = shape.groups * shape.c;
  visit_wide("conv2d", dx.dtype(), [&]<class T>() {
    T* const dx_data = dx.data<T>();
    T* const dy_data = dy.data<T>();
    parallel_for(stream, shape.groups * blocks, 1, [&](int64_t unit, int64_t) {
      const int64_t group = unit / blocks, block = unit % blocks, depth = shape.depth();
      const Matrix<T> turned = filters_of(shape, group, w.data<T>()).transposed();
      const Workspace<T> col(stream, in_place ? 0 : depth * strips.pixels(shape));
      const Workspace<T> packed(stream, strips.images > 1 ? shape.k * strips.pixels(shape) : 0);
      for (int64_t n = block * strips.images; n < std::min(shape.n, (block + 1) * strips.images); ++n) {
        const int64_t first = (n * channels + group * shape.c) * shape.h * shape.w, size = shape.c * shape.h * shape.w;
        if (addend)
          std::copy_n(addend.data<T>() + first, size, dx_data + first);
        else
          std::fill_n(dx_data + first, size, T{0});
      }
      for (int64_t i = block * strips.per_image; i < (block + 1) * strips.per_image; ++i) {
        const Strip strip = strips(shape, i);
        const int64_t pixels = strip.pixels(shape);
        for_each_segment(shape, strip, group, dy_data, packed.data(), gather<T>);
        const Matrix<T> grad = strip_of_y(shape, strip, group, dy_data, packed.data());
        if (in_place) {
          add_product(strip_of_x(shape, strip, group * shape.c, shape.c, dx_data), turned, grad);
        } else {
          std::fill_n(col.data(), depth * pixels, T{0});
          add_product({col.data(), depth, pixels, pixels}, turned, grad);
          col2im(shape, strip, group * shape.c, shape.c, dx_data, col.data());
        }
      }
    });
  });
}

// Units are groups × blocks of channels × parts of the strips. Every part sums into a weight gradient of its own; their
// number follows from the shape, and they are added in order, so the result does not depend on the number of threads.
void conv2d_im2col_backward_weight(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& options) {
  if (dw.numel() == 0) return;
  if (is_16_bit(dy))
    return narrow_into(
        dw, [&](const Tensor& wide) { conv2d_im2col_backward_weight(stream, wide, widen(dy), widen(x), options); });
  const ConvShape shape = conv_shape(x, dw, dy, options);
  const Strips strips(shape);
  const bool in_place = shape.is_pointwise() && strips.images == 1;
  constexpr int64_t kBlockDepth = 1024, kUnits = 64, kPartElements = int64_t{1} << 22;
  const int64_t taps = shape.r * shape.s, weights = dw.numel();
  const int64_t block = ceil_div(shape.c, ceil_div(shape.c * taps, kBlockDepth));  // channels
  const int64_t blocks = ceil_div(shape.c, block);
  const int64_t parts = std::clamp<int64_t>(std::min(kUnits / (shape.groups * blocks), kPartElements / weights), 1,
                                            std::max<int64_t>(1, strips.count));
  visit_wide("conv2d", dw.dtype(), [&]<class T>() {
    T* const x_data = x.data<T>();
    T* const dy_data = dy.data<T>();
    T* const dw_data = dw.data<T>();
    const Workspace<T> partial(stream, parts > 1 ? parts * weights : 0);
    parallel_for(stream, shape.groups * blocks * parts, 1, [&](int64_t unit, int64_t) {
      const int64_t part = unit % parts, group = unit / (parts * blocks), first = unit / parts % blocks * block;
      const int64_t channels = std::min(block, shape.c - first), depth = channels * taps;
      T* const target = parts > 1 ? partial.data() + part * weights : dw_data;
      const Matrix<T> sum = filters_of(shape, group, target).block(0, first * taps, shape.k, depth);
      for (int64_t k = 0; k < shape.k; ++k) std::fill_n(sum.at(k, 0), depth, T{0});
      const Workspace<T> col(stream, in_place ? 0 : depth * strips.pixels(shape));
      const Workspace<T> packed(stream, strips.images > 1 ? shape.k * strips.pixels(shape) : 0);
      for (int64_t i = strips.count * part / parts; i < strips.count * (part + 1) / parts; ++i) {
        const Strip strip = strips(shape, i);
        const int64_t pixels = strip.pixels(shape);
        for_each_segment(shape, strip, group, dy_data, packed.data(), gather<T>);
        if (!in_place) im2col(shape, strip, group * shape.c + first, channels, col.data(), x_data);
        const Matrix<T> seen = in_place ? strip_of_x(shape, strip, group * shape.c + first, channels, x_data)
                                        : Matrix<T>{col.data(), depth, pixels, pixels};
        add_product(sum, strip_of_y(shape, strip, group, dy_data, packed.data()), seen.transposed());
      }
    });
    if (parts == 1) return;
    parallel_for(stream, weights, grain(parts), [&](int64_t begin, int64_t end) {
      std::copy(partial.data() + begin, partial.data() + end, dw_data + begin);
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t i = begin; i < end; ++i) dw_data[i] += partial[part * weights + i];
    });
  });
}

// ---- channel-blocked images -----------------------------------------------------------------------------------------

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

void conv2d_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Conv2dOptions& options) {
  if (!y.is_channel_blocked()) return conv2d_im2col(stream, y, x, w, b, options);
  const conv::Conv2dGeometry g = geometry(x, w, options);
  const Tensor filters = in_dtype(w, DType::Float32), bias = in_dtype(b, DType::Float32);
  const float *const w_data = filters.data<float>(), *const b_data = bias.defined() ? bias.data<float>() : nullptr;
  visit_blocked(y, [&]<class T>() {
    if (x.is_channel_blocked())
      conv::convolve(stream, g, algorithm(g), Direction::Forward, x.data<T>(), w_data, b_data,
                     static_cast<const T*>(nullptr), y.data<T>());
    else
      conv::convolve_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), w_data, b_data, y.data<T>());
  });
}

void conv2d_backward_input_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& addend,
                               const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_im2col_backward_input(stream, dx, dy, w, addend, options);
  const conv::Conv2dGeometry g = geometry(dx, w, options);
  const Tensor filters = in_dtype(w, DType::Float32);
  visit_blocked(dy, [&]<class T>() {
    conv::convolve(stream, g, algorithm(g), Direction::BackwardInput, dy.data<T>(), filters.data<float>(), nullptr,
                   addend ? static_cast<const T*>(addend.data<T>()) : nullptr, dx.data<T>());
  });
}

void conv2d_backward_weight_cpu(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_im2col_backward_weight(stream, dw, dy, x, options);
  if (is_16_bit(dw))
    return narrow_into(dw, [&](const Tensor& wide) { conv2d_backward_weight_cpu(stream, wide, dy, x, options); });
  const conv::Conv2dGeometry g = geometry(x, dw, options);
  visit_blocked(dy, [&]<class T>() {
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
}  // namespace ringgrad::cpu
