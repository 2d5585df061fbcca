#include "ringgrad/core/cpu/conv/convolve.h"

#include "ringgrad/core/cpu/amx/convolution.h"
#include "ringgrad/core/cpu/conv/direct.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Calls body.operator()<Scheme>() with the scheme of a forward pass. The weight gradient uses the
// same scheme.
template <class Body>
void visit_forward_scheme(ConvMethod method, Body body) {
  if (method == ConvMethod::WinogradStride2)
    body.template operator()<Stride2>();
  else if (method == ConvMethod::WinogradF43)
    body.template operator()<F43>();
  else if (method == ConvMethod::WinogradF45)
    body.template operator()<F45>();
  else
    body.template operator()<F25>();
}

bool is_winograd(ConvMethod method) {
  return method == ConvMethod::WinogradF43 || method == ConvMethod::WinogradF25 ||
         method == ConvMethod::WinogradF45 || method == ConvMethod::WinogradStride2;
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

}  // namespace

template <class T>
void convolve(Stream stream, const Conv2dGeometry& g, ConvMethod method, Direction direction,
              const T* x, const float* w, const float* bias, const T* addend, T* y) {
  if (!is_winograd(method)) {
    const DirectProblem problem = direct_problem(stream, g, direction, InputLayout::Blocked);
    if constexpr (std::is_same_v<T, bfloat16>)
      if (method == ConvMethod::Tiles) return amx::convolution(problem, x, w, bias, addend, y);
    return direct_convolution(problem, x, w, bias, addend, y);
  }
  const WinogradProblem problem = winograd_problem(stream, g, direction);
  if (g.stride == 2 && direction == Direction::BackwardInput)
    return winograd_convolution<Stride2Backward>(problem, x, w, bias, addend, y);
  visit_forward_scheme(method, [&]<class Scheme>() {
    winograd_convolution<Scheme>(problem, x, w, bias, addend, y);
  });
}

template <class T>
void weight_gradient(Stream stream, const Conv2dGeometry& g, ConvMethod method, const T* x,
                     const T* dy, float* dw) {
  if (!is_winograd(method)) {
    const DirectProblem problem =
        direct_problem(stream, g, Direction::Forward, InputLayout::Blocked);
    if constexpr (std::is_same_v<T, bfloat16>)
      if (method == ConvMethod::Tiles) return amx::weight_gradient(problem, x, dy, dw);
    return direct_weight_gradient(problem, x, dy, dw);
  }
  const WinogradProblem problem = winograd_problem(stream, g, Direction::Forward);
  visit_forward_scheme(
      method, [&]<class Scheme>() { winograd_weight_gradient<Scheme>(problem, x, dy, dw); });
}

template <class T>
void convolve_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const float* w,
                   const float* bias, T* y) {
  direct_convolution(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x, w,
                     bias, static_cast<const T*>(nullptr), y);
}

template <class T>
void weight_gradient_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const T* dy,
                          float* dw) {
  direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x,
                         dy, dw);
}

#define INSTANTIATE(T)                                                                         \
  template void convolve(Stream, const Conv2dGeometry&, ConvMethod, Direction, const T*,       \
                         const float*, const float*, const T*, T*);                            \
  template void weight_gradient(Stream, const Conv2dGeometry&, ConvMethod, const T*, const T*, \
                                float*);                                                       \
  template void convolve_nchw(Stream, const Conv2dGeometry&, const float*, const float*,       \
                              const float*, T*);                                               \
  template void weight_gradient_nchw(Stream, const Conv2dGeometry&, const float*, const T*, float*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
