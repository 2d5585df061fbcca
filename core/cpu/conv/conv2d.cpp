#include "core/cpu/conv/conv2d.h"

#include <type_traits>

#include "core/check.h"
#include "core/cpu/conv/direct.h"
#include "core/cpu/conv/transforms_stride2.h"
#include "core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Calls body.operator()<Product>() with the product of a precision; T is the images' type. Numbers in bfloat16 are not
// multiplied in float32: that would double the work of reading them for nothing.
template <class T, class Body>
void visit_product(Method method, Body body) {
#if RINGGRAD_BFLOAT16_PRODUCTS
  if (method.precision == Precision::BFloat16) return body.template operator()<BFloat16Product>();
#endif
  CHECK_AS(NotImplementedError, method.precision == Precision::Float32,
           "conv2d: bfloat16 products need a processor with AVX512_BF16 and a build for it; use float32");
  if constexpr (std::is_same_v<T, float>)
    body.template operator()<Float32Product>();
  else
    throw NotImplementedError("conv2d: bfloat16 images need bfloat16 products");
}

// Calls body.operator()<Scheme>() with the Winograd scheme of a geometry and direction.
template <class Body>
void visit_scheme(const Conv2dGeometry& g, Direction direction, Body body) {
  if (g.stride == 2 && direction == Direction::Forward)
    body.template operator()<Stride2>();
  else if (g.stride == 2)
    body.template operator()<Stride2Backward>();
  else if (g.r == 3)
    body.template operator()<F43>();
  else
    body.template operator()<F25>();
}

WinogradProblem winograd_problem(Stream stream, const Conv2dGeometry& g, Direction direction) {
  const bool forward = direction == Direction::Forward;
  const int64_t backward_offset = g.stride == 2 ? 0 : g.r - 1 - g.padding;
  return {stream,
          forward ? input_shape(g) : output_shape(g),
          forward ? output_shape(g) : input_shape(g),
          forward ? g.padding : backward_offset,
          filter_shape(g),
          direction};
}

void check_supported(const Conv2dGeometry& g, Method method) {
  CHECK_AS(NotImplementedError, method.algorithm == Algorithm::Direct || supports(g, {method.algorithm}),
           "conv2d: Winograd's algorithm has no scheme for filters of ", g.r, " x ", g.s, " with stride ", g.stride,
           " and padding ", g.padding, "; use the direct algorithm");
}

template <class T>
void convolve(Stream stream, const Conv2dGeometry& g, Method method, Direction direction, const T* x, const float* w,
              const float* bias, T* y) {
  check_supported(g, method);
  visit_product<T>(method, [&]<class Product>() {
    if (method.algorithm == Algorithm::Direct)
      return direct_convolution<Product>(direct_problem(stream, g, direction, InputLayout::Blocked), x, w, bias, y);
    const WinogradProblem problem = winograd_problem(stream, g, direction);
    visit_scheme(g, direction, [&]<class Scheme>() { winograd_convolution<Scheme, Product>(problem, x, w, bias, y); });
  });
}

}  // namespace

bool supports(const Conv2dGeometry& g, Method method) {
  if (method.precision == Precision::BFloat16 && !RINGGRAD_BFLOAT16_PRODUCTS) return false;
  const bool stride1 = g.stride == 1 && (g.r == 3 || g.r == 5), stride2 = g.stride == 2 && g.r == 3 && g.padding == 1;
  return method.algorithm == Algorithm::Direct || (g.r == g.s && (stride1 || stride2));
}

// Stride 1: Winograd is 1.6 (5 x 5) to 3 times as fast as direct from 16 channels and images of 2 x 2 on. Stride 2: 1.1
// to 1.9 times from 32 channels on, unless most of a tile of 4 x 4 outputs lies outside the image.
Algorithm fastest_algorithm(const Conv2dGeometry& g) {
  const bool pays = g.stride == 1 || (std::min(g.c, g.k) >= 32 && std::min(g.oh, g.ow) > 2);
  return pays && supports(g, {Algorithm::Winograd}) ? Algorithm::Winograd : Algorithm::Direct;
}

template <class T>
void forward(Stream stream, const Conv2dGeometry& g, Method method, const T* x, const float* w, const float* bias,
             T* y) {
  convolve(stream, g, method, Direction::Forward, x, w, bias, y);
}

template <class T>
void backward_input(Stream stream, const Conv2dGeometry& g, Method method, const T* dy, const float* w, T* dx) {
  convolve(stream, g, method, Direction::BackwardInput, dy, w, nullptr, dx);
}

template <class T>
void backward_weight(Stream stream, const Conv2dGeometry& g, Method method, const T* x, const T* dy, float* dw) {
  check_supported(g, method);
  visit_product<T>(method, [&]<class Product>() {
    if (method.algorithm == Algorithm::Direct)
      return direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Blocked), x, dy, dw);
    const WinogradProblem problem = winograd_problem(stream, g, Direction::Forward);
    if (g.stride == 2)
      winograd_weight_gradient<Stride2, Product>(problem, x, dy, dw);
    else if (g.r == 3)
      winograd_weight_gradient<F43, Product>(problem, x, dy, dw);
    else
      winograd_weight_gradient<F25, Product>(problem, x, dy, dw);
  });
}

template <class T>
void forward_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const float* w, const float* bias, T* y) {
  const DirectProblem problem = direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous);
  direct_convolution<Float32Product>(problem, x, w, bias, y);
}

template <class T>
void backward_weight_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const T* dy, float* dw) {
  direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x, dy, dw);
}

#define INSTANTIATE(T)                                                                                     \
  template void forward(Stream, const Conv2dGeometry&, Method, const T*, const float*, const float*, T*);  \
  template void backward_input(Stream, const Conv2dGeometry&, Method, const T*, const float*, T*);         \
  template void backward_weight(Stream, const Conv2dGeometry&, Method, const T*, const T*, float*);        \
  template void forward_nchw(Stream, const Conv2dGeometry&, const float*, const float*, const float*, T*); \
  template void backward_weight_nchw(Stream, const Conv2dGeometry&, const float*, const T*, float*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
