#include "ringgrad/core/cpu/conv/conv2d.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv/direct.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

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

void check_supported(const Conv2dGeometry& g, Algorithm algorithm) {
  CHECK_AS(NotImplementedError, supports(g, algorithm), "conv2d: Winograd's algorithm has no scheme for filters of ",
           g.r, " x ", g.s, " with stride ", g.stride, " and padding ", g.padding, "; use the direct algorithm");
}

template <class T>
void convolve(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, Direction direction, const T* x,
              const float* w, const float* bias, T* y) {
  check_supported(g, algorithm);
  if (algorithm == Algorithm::Direct)
    return direct_convolution(direct_problem(stream, g, direction, InputLayout::Blocked), x, w, bias, y);
  const WinogradProblem problem = winograd_problem(stream, g, direction);
  visit_scheme(g, direction, [&]<class Scheme>() { winograd_convolution<Scheme>(problem, x, w, bias, y); });
}

}  // namespace

bool supports(const Conv2dGeometry& g, Algorithm algorithm) {
  const bool stride1 = g.stride == 1 && (g.r == 3 || g.r == 5), stride2 = g.stride == 2 && g.r == 3 && g.padding == 1;
  return algorithm == Algorithm::Direct || (g.r == g.s && (stride1 || stride2));
}

// Stride 1: Winograd is 1.6 (5 x 5) to 3 times as fast as direct from 16 channels and images of 2 x 2 on. Stride 2: 1.1
// to 1.9 times from 32 channels on, unless most of a tile of 4 x 4 outputs lies outside the image.
Algorithm fastest_algorithm(const Conv2dGeometry& g) {
  const bool pays = g.stride == 1 || (std::min(g.c, g.k) >= 32 && std::min(g.oh, g.ow) > 2);
  return pays && supports(g, Algorithm::Winograd) ? Algorithm::Winograd : Algorithm::Direct;
}

template <class T>
void forward(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const T* x, const float* w, const float* bias,
             T* y) {
  convolve(stream, g, algorithm, Direction::Forward, x, w, bias, y);
}

template <class T>
void backward_input(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const T* dy, const float* w, T* dx) {
  convolve(stream, g, algorithm, Direction::BackwardInput, dy, w, nullptr, dx);
}

template <class T>
void backward_weight(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const T* x, const T* dy, float* dw) {
  check_supported(g, algorithm);
  if (algorithm == Algorithm::Direct)
    return direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Blocked), x, dy, dw);
  const WinogradProblem problem = winograd_problem(stream, g, Direction::Forward);
  if (g.stride == 2)
    winograd_weight_gradient<Stride2>(problem, x, dy, dw);
  else if (g.r == 3)
    winograd_weight_gradient<F43>(problem, x, dy, dw);
  else
    winograd_weight_gradient<F25>(problem, x, dy, dw);
}

template <class T>
void forward_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const float* w, const float* bias, T* y) {
  const DirectProblem problem = direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous);
  direct_convolution(problem, x, w, bias, y);
}

template <class T>
void backward_weight_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const T* dy, float* dw) {
  direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x, dy, dw);
}

#define INSTANTIATE(T)                                                                                       \
  template void forward(Stream, const Conv2dGeometry&, Algorithm, const T*, const float*, const float*, T*); \
  template void backward_input(Stream, const Conv2dGeometry&, Algorithm, const T*, const float*, T*);        \
  template void backward_weight(Stream, const Conv2dGeometry&, Algorithm, const T*, const T*, float*);       \
  template void forward_nchw(Stream, const Conv2dGeometry&, const float*, const float*, const float*, T*);   \
  template void backward_weight_nchw(Stream, const Conv2dGeometry&, const float*, const T*, float*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
