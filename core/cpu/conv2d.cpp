// Convolution on the CPU, by the methods of conv/plan.h. Channel-blocked images use the Winograd
// and direct kernels of core/cpu/conv/; with dilation they are split into sub-images first,
// and groups of whole blocks of channels are convolved one by one. Contiguous images use
// plane_convolution.h, with any stride, dilation and group. Those of float64 are cut into strips of
// im2col that fit the second-level cache, and multiplied by Eigen.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv/convolve.h"
#include "ringgrad/core/cpu/conv/depthwise.h"
#include "ringgrad/core/cpu/conv/depthwise_blocked.h"
#include "ringgrad/core/cpu/conv/plan.h"
#include "ringgrad/core/cpu/conv/plane_convolution.h"
#include "ringgrad/core/cpu/conv/sub_images.h"
#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/cpu/im2col.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"

namespace ringgrad::cpu {
namespace {

// ---- contiguous images --------------------------------------------------------------------------

ConvShape shape_of(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o) {
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

ConvShape conv_shape(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o) {
  ASSERT(x.is_contiguous() && w.is_contiguous() && y.is_contiguous());
  ASSERT(x.dtype() == w.dtype() && x.dtype() == y.dtype() &&
         x.shape()[1] == w.shape()[1] * o.groups);
  return shape_of(x, w, y, o);
}

// Returns the pixels of one strip in y (or dy) [n, filters, p, q], for the filters of one group, as
// a matrix [k, pixels].
Matrix<double> strip_of_y(const ConvShape& shape, const Strip& strip, int64_t group, double* y) {
  double* const first =
      y + ((strip.image * shape.groups + group) * shape.k * shape.p + strip.row) * shape.q;
  return {first, shape.k, strip.rows * shape.q, shape.p * shape.q};
}
Matrix<double> filters_of(const ConvShape& shape, int64_t group, double* w) {
  return {w + group * shape.k * shape.depth(), shape.k, shape.depth(), shape.depth()};
}

void conv2d_nchw(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                 const Conv2dOptions& options) {
  if (y.numel() == 0) return;
  if (is_16_bit(y))
    return narrow_into(y, [&](const Tensor& wide) {
      conv2d_nchw(stream, wide, widen(x), widen(w), widen(b), options);
    });
  const ConvShape shape = conv_shape(x, w, y, options);
  const ConvMethod method = conv::plan(conv_problem(ConvPass::Forward, x, w, y, options)).method;
  if (method == ConvMethod::Depthwise)
    return visit_wide("conv2d", y.dtype(), [&]<class T>() {
      conv::depthwise<T>(stream, shape, x.data<T>(), w.data<T>(), b ? b.data<T>() : nullptr,
                         y.data<T>());
    });
  if (method == ConvMethod::Planes)
    return conv::convolve_planes(stream, shape, x.data<float>(), w.data<float>(),
                                 b.defined() ? b.data<float>() : nullptr, y.data<float>());
  const Strips strips(shape);
  const double* const bias = b.defined() ? b.data<double>() : nullptr;
  parallel_for(stream, shape.groups * strips.count, 1, [&](int64_t unit, int64_t) {
    const int64_t group = unit / strips.count;
    const int64_t depth = shape.depth();
    const Strip strip = strips(shape, unit % strips.count);
    const int64_t pixels = strip.rows * shape.q;
    const Workspace<double> col(stream, depth * pixels);
    im2col(shape, strip, group * shape.c, shape.c, col.data(), x.data<double>());
    const Matrix<double> out = strip_of_y(shape, strip, group, y.data<double>());
    for (int64_t k = 0; k < shape.k; ++k)
      std::fill_n(out.at(k, 0), pixels, bias ? bias[group * shape.k + k] : 0.0);
    add_product(out, filters_of(shape, group, w.data<double>()),
                {col.data(), depth, pixels, pixels});
  });
}

// A unit owns a whole image, because the strips of one image overlap in dx.
void conv2d_nchw_backward_input(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                const Tensor& addend, const Conv2dOptions& options) {
  if (dx.numel() == 0) return;
  if (is_16_bit(dx))
    return narrow_into(dx, [&](const Tensor& wide) {
      conv2d_nchw_backward_input(stream, wide, widen(dy), widen(w), widen(addend), options);
    });
  const ConvShape shape = conv_shape(dx, w, dy, options);
  const ConvMethod method =
      conv::plan(conv_problem(ConvPass::BackwardInput, dx, w, dy, options)).method;
  if (method == ConvMethod::Depthwise)
    return visit_wide("conv2d", dx.dtype(), [&]<class T>() {
      conv::depthwise_backward_input<T>(stream, shape, dy.data<T>(), w.data<T>(),
                                        addend ? addend.data<T>() : nullptr, dx.data<T>());
    });
  if (method == ConvMethod::Planes)
    return conv::convolve_planes_backward(stream, shape, dy.data<float>(), w.data<float>(),
                                          addend ? addend.data<float>() : nullptr,
                                          dx.data<float>());
  const Strips strips(shape);
  parallel_for(stream, shape.groups * shape.n, 1, [&](int64_t unit, int64_t) {
    const int64_t group = unit / shape.n;
    const int64_t image = unit % shape.n;
    const int64_t depth = shape.depth();
    const int64_t size = shape.c * shape.h * shape.w;
    const int64_t first = (image * shape.groups + group) * size;
    const Workspace<double> col(stream, depth * strips.rows * shape.q);
    if (addend)
      std::copy_n(addend.data<double>() + first, size, dx.data<double>() + first);
    else
      std::fill_n(dx.data<double>() + first, size, 0.0);
    for (int64_t i = image * strips.per_image; i < (image + 1) * strips.per_image; ++i) {
      const Strip strip = strips(shape, i);
      const int64_t pixels = strip.rows * shape.q;
      std::fill_n(col.data(), depth * pixels, 0.0);
      add_product({col.data(), depth, pixels, pixels},
                  filters_of(shape, group, w.data<double>()).transposed(),
                  strip_of_y(shape, strip, group, dy.data<double>()));
      col2im(shape, strip, group * shape.c, shape.c, dx.data<double>(), col.data());
    }
  });
}

// Units are groups × blocks of channels × parts of the strips. Every part sums into its own weight
// gradient. The number of parts follows from the shape, and they are added in order, so the result
// does not depend on the number of threads.
void conv2d_nchw_backward_weight(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                 const Conv2dOptions& options) {
  if (dw.numel() == 0) return;
  if (is_16_bit(dy))
    return narrow_into(dw, [&](const Tensor& wide) {
      conv2d_nchw_backward_weight(stream, wide, widen(dy), widen(x), options);
    });
  const ConvShape shape = conv_shape(x, dw, dy, options);
  const ConvMethod method =
      conv::plan(conv_problem(ConvPass::BackwardWeight, x, dw, dy, options)).method;
  if (method == ConvMethod::Depthwise)
    return visit_wide("conv2d", dw.dtype(), [&]<class T>() {
      conv::depthwise_backward_weight<T>(stream, shape, x.data<T>(), dy.data<T>(), dw.data<T>());
    });
  if (method == ConvMethod::Planes)
    return conv::plane_weight_gradient(stream, shape, x.data<float>(), dy.data<float>(),
                                       dw.data<float>());
  const Strips strips(shape);
  constexpr int64_t kBlockDepth = 1024;
  constexpr int64_t kUnits = 64;
  constexpr int64_t kPartElements = int64_t{1} << 22;
  const int64_t taps = shape.r * shape.s;
  const int64_t weights = dw.numel();
  const int64_t block = ceil_div(shape.c, ceil_div(shape.c * taps, kBlockDepth));  // channels
  const int64_t blocks = ceil_div(shape.c, block);
  const int64_t parts =
      std::clamp<int64_t>(std::min(kUnits / (shape.groups * blocks), kPartElements / weights), 1,
                          std::max<int64_t>(1, strips.count));
  const Workspace<double> partial(stream, parts * weights);
  parallel_for(stream, shape.groups * blocks * parts, 1, [&](int64_t unit, int64_t) {
    const int64_t part = unit % parts;
    const int64_t group = unit / (parts * blocks);
    const int64_t first = unit / parts % blocks * block;
    const int64_t channels = std::min(block, shape.c - first);
    const int64_t depth = channels * taps;
    const Matrix<double> sum = filters_of(shape, group, partial.data() + part * weights)
                                   .block(0, first * taps, shape.k, depth);
    for (int64_t k = 0; k < shape.k; ++k) std::fill_n(sum.at(k, 0), depth, 0.0);
    const Workspace<double> col(stream, depth * strips.rows * shape.q);
    for (int64_t i = strips.count * part / parts; i < strips.count * (part + 1) / parts; ++i) {
      const Strip strip = strips(shape, i);
      const int64_t pixels = strip.rows * shape.q;
      im2col(shape, strip, group * shape.c + first, channels, col.data(), x.data<double>());
      add_product(sum, strip_of_y(shape, strip, group, dy.data<double>()),
                  Matrix<double>{col.data(), depth, pixels, pixels}.transposed());
    }
  });
  parallel_for(stream, weights, grain(parts), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double& total = dw.data<double>()[i] = partial[i];
      for (int64_t part = 1; part < parts; ++part) total += partial[part * weights + i];
    }
  });
}

// ---- channel-blocked images ---------------------------------------------------------------------

using conv::Direction;

conv::Conv2dGeometry geometry(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  const Shape& image = x.shape();
  const Shape& filters = w.shape();
  return conv::conv2d_geometry(image[0], image[1], image[2], image[3], filters[0], filters[2],
                               filters[3], options.stride.h, options.padding.h);
}

Tensor blocked(const Tensor& x) {
  if (x.is_channel_blocked()) return x;
  const Tensor images = empty(x.shape(), {x.dtype(), x.device(), Layout::ChannelBlocked});
  kernels::copy(images, x);
  return images;
}

// ---- with dilation: sub-images

bool is_dilated(const Conv2dOptions& options) { return options.dilation != Pair(1); }

conv::BlockedShape blocked_shape(const Tensor& x) {
  return {x.size(0), conv::channel_blocks(x.size(1)), x.size(2), x.size(3)};
}
conv::SubImages made_by(const Tensor& y, const Conv2dOptions& options) {
  return conv::sub_images_made(blocked_shape(y), options);
}
conv::SubImages seen_in(const Tensor& x, const Tensor& y, const Tensor& w,
                        const Conv2dOptions& options) {
  return conv::sub_images_seen(blocked_shape(x), blocked_shape(y), {w.size(2), w.size(3)}, options);
}

// Returns an empty tensor for the sub-images of such an image.
Tensor parts_like(const conv::SubImages& sub, const Tensor& image) {
  return empty({sub.parts().n, image.size(1), sub.h, sub.w},
               {image.dtype(), image.device(), Layout::ChannelBlocked});
}
Tensor split(Stream stream, const conv::SubImages& sub, const Tensor& image) {
  if (!image) return image;
  const Tensor whole = blocked(image);
  const Tensor parts = parts_like(sub, image);
  visit_blocked(whole,
                [&]<class T>() { conv::split(stream, sub, whole.data<T>(), parts.data<T>()); });
  return parts;
}
void join(Stream stream, const conv::SubImages& sub, const Tensor& parts, const Tensor& image) {
  visit_blocked(image,
                [&]<class T>() { conv::join(stream, sub, parts.data<T>(), image.data<T>()); });
}

// ---- with groups: each by itself

// The convolution of one group, whose channels fill their blocks: copies of its channels, which the
// caches hold while they are worked on, and its filters where they lie.
struct Group {
  int64_t count;
  int64_t index;
  Conv2dOptions options;  // of the one

  Tensor images_like(const Tensor& images) const {
    return empty({images.size(0), images.size(1) / count, images.size(2), images.size(3)},
                 {images.dtype(), images.device(), Layout::ChannelBlocked});
  }
  Tensor images_of(const Tensor& images) const {
    if (!images) return images;
    const Tensor part = images_like(images);
    kernels::copy(rows(part, 1, 0), rows(images, count, index));
    return part;
  }
  void put(const Tensor& part, const Tensor& images) const {
    kernels::copy(rows(images, count, index), rows(part, 1, 0));
  }
  // Returns this group's part of w, dw or a bias.
  Tensor filters_of(const Tensor& filters) const {
    if (!filters) return filters;
    Shape shape = filters.shape();
    shape[0] /= count;
    return filters.as_strided(shape, filters.strides(),
                              filters.storage_offset() + index * shape[0] * filters.strides()[0]);
  }

 private:
  // Memory of channel-blocked images: the part of each image.
  static Tensor rows(const Tensor& images, int64_t parts, int64_t part) {
    const int64_t n = images.size(0);
    const int64_t length = blocked_shape(images).numel() / std::max<int64_t>(1, n * parts);
    return Tensor(images.storage(), {n, length}, {parts * length, 1},
                  images.storage_offset() + part * length, images.dtype());
  }
};

// Calls body(Group) for each group of several channels. Returns false if there are none. If all
// threads have as many groups, each group is one thread's, and the threads wait for each other
// once; otherwise all threads share each group.
template <class Body>
bool for_each_group(Stream stream, const Conv2dOptions& options, ConvMethod method,
                    const Body& body) {
  if (options.groups == 1 || method == ConvMethod::DepthwiseBlocked) return false;
  Conv2dOptions of_one = options;
  of_one.groups = 1;
  const bool even = options.groups % thread_count(stream) == 0;
  const int64_t together = even ? 1 : options.groups;
  parallel_for(stream, options.groups, together, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(Group{options.groups, i, of_one});
  });
  return true;
}

// ---- the kernels

void conv2d_cpu(Stream stream, const Tensor& y, const Tensor& images, const Tensor& w,
                const Tensor& b, const Conv2dOptions& options) {
  if (!y.is_channel_blocked()) return conv2d_nchw(stream, y, images, w, b, options);
  const ConvMethod method =
      conv::plan(conv_problem(ConvPass::Forward, images, w, y, options)).method;
  if (method == ConvMethod::DepthwiseBlocked) {
    const Tensor filters = in_dtype(w, DType::Float32);
    const Tensor bias = in_dtype(b, DType::Float32);
    const Tensor x = blocked(images);
    return visit_blocked(y, [&]<class T>() {
      conv::depthwise_blocked<T>(stream, shape_of(x, w, y, options), x.data<T>(),
                                 filters.data<float>(), bias ? bias.data<float>() : nullptr,
                                 y.data<T>());
    });
  }
  const auto by_group = [&, x = options.groups > 1 ? blocked(images) : images](const Group& group) {
    const Tensor part = group.images_like(y);
    conv2d_cpu(stream, part, group.images_of(x), group.filters_of(w), group.filters_of(b),
               group.options);
    group.put(part, y);
  };
  if (for_each_group(stream, options, method, by_group)) return;
  if (is_dilated(options)) {
    const conv::SubImages made = made_by(y, options);
    const Tensor parts = parts_like(made, y);
    conv2d_cpu(stream, parts, split(stream, seen_in(images, y, w, options), images), w, b, {});
    return join(stream, made, parts, y);
  }
  const bool first_layer = method == ConvMethod::FirstLayer;
  const Tensor x = first_layer ? images : blocked(images);
  const conv::Conv2dGeometry g = geometry(x, w, options);
  const Tensor filters = in_dtype(w, DType::Float32);
  const Tensor bias = in_dtype(b, DType::Float32);
  const float* const w_data = filters.data<float>();
  const float* const b_data = bias.defined() ? bias.data<float>() : nullptr;
  visit_blocked(y, [&]<class T>() {
    if (first_layer)
      conv::convolve_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), w_data, b_data,
                          y.data<T>());
    else
      conv::convolve(stream, g, method, Direction::Forward, x.data<T>(), w_data, b_data,
                     static_cast<const T*>(nullptr), y.data<T>());
  });
}

void conv2d_backward_input_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                               const Tensor& addend, const Conv2dOptions& options) {
  if (!dy.is_channel_blocked())
    return conv2d_nchw_backward_input(stream, dx, dy, w, addend, options);
  const ConvMethod method =
      conv::plan(conv_problem(ConvPass::BackwardInput, dx, w, dy, options)).method;
  if (method == ConvMethod::DepthwiseBlocked) {
    const Tensor filters = in_dtype(w, DType::Float32);
    return visit_blocked(dy, [&]<class T>() {
      conv::depthwise_blocked_backward_input<T>(stream, shape_of(dx, w, dy, options), dy.data<T>(),
                                                filters.data<float>(),
                                                addend ? addend.data<T>() : nullptr, dx.data<T>());
    });
  }
  const auto by_group = [&](const Group& group) {
    const Tensor part = group.images_like(dx);
    conv2d_backward_input_cpu(stream, part, group.images_of(dy), group.filters_of(w),
                              group.images_of(addend), group.options);
    group.put(part, dx);
  };
  if (for_each_group(stream, options, method, by_group)) return;
  if (is_dilated(options)) {
    const conv::SubImages seen = seen_in(dx, dy, w, options);
    const Tensor parts = parts_like(seen, dx);
    const Tensor addends = split(stream, seen, addend);
    conv2d_backward_input_cpu(stream, parts, split(stream, made_by(dy, options), dy), w, addends,
                              {});
    return join(stream, seen, parts, dx);
  }
  const conv::Conv2dGeometry g = geometry(dx, w, options);
  const Tensor filters = in_dtype(w, DType::Float32);
  visit_blocked(dy, [&]<class T>() {
    conv::convolve(stream, g, method, Direction::BackwardInput, dy.data<T>(), filters.data<float>(),
                   nullptr, addend ? static_cast<const T*>(addend.data<T>()) : nullptr,
                   dx.data<T>());
  });
}

void conv2d_backward_weight_cpu(Stream stream, const Tensor& dw, const Tensor& dy,
                                const Tensor& images, const Conv2dOptions& options) {
  if (!dy.is_channel_blocked()) return conv2d_nchw_backward_weight(stream, dw, dy, images, options);
  if (is_16_bit(dw))
    return narrow_into(dw, [&](const Tensor& wide) {
      conv2d_backward_weight_cpu(stream, wide, dy, images, options);
    });
  const ConvMethod method =
      conv::plan(conv_problem(ConvPass::BackwardWeight, images, dw, dy, options)).method;
  if (method == ConvMethod::DepthwiseBlocked) {
    const Tensor x = blocked(images);
    return visit_blocked(dy, [&]<class T>() {
      conv::depthwise_blocked_backward_weight<T>(stream, shape_of(x, dw, dy, options), x.data<T>(),
                                                 dy.data<T>(), dw.data<float>());
    });
  }
  const auto by_group = [&, x = options.groups > 1 ? blocked(images) : images](const Group& group) {
    conv2d_backward_weight_cpu(stream, group.filters_of(dw), group.images_of(dy),
                               group.images_of(x), group.options);
  };
  if (for_each_group(stream, options, method, by_group)) return;
  if (is_dilated(options)) {
    return conv2d_backward_weight_cpu(stream, dw, split(stream, made_by(dy, options), dy),
                                      split(stream, seen_in(images, dy, dw, options), images), {});
  }
  const bool first_layer = method == ConvMethod::FirstLayer;
  const Tensor x = first_layer ? images : blocked(images);
  const conv::Conv2dGeometry g = geometry(x, dw, options);
  visit_blocked(dy, [&]<class T>() {
    if (first_layer)
      conv::weight_gradient_nchw(stream, g, in_dtype(x, DType::Float32).data<float>(), dy.data<T>(),
                                 dw.data<float>());
    else
      conv::weight_gradient(stream, g, method, x.data<T>(), dy.data<T>(), dw.data<float>());
  });
}

REGISTER_KERNEL(conv2d, CPU, Native, conv2d_cpu);
REGISTER_KERNEL(conv2d_backward_input, CPU, Native, conv2d_backward_input_cpu);
REGISTER_KERNEL(conv2d_backward_weight, CPU, Native, conv2d_backward_weight_cpu);
REGISTER_KERNEL(conv2d_batch_stats, CPU, Native, conv2d_batch_stats_in_steps);
REGISTER_KERNEL(conv2d_backward_batch_sums, CPU, Native, conv2d_backward_batch_sums_in_steps);

}  // namespace
}  // namespace ringgrad::cpu
