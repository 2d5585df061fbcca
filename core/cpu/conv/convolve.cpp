#include "ringgrad/core/cpu/conv/convolve.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/amx/convolution.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/conv/direct.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Calls body.operator()<Scheme>() with the Winograd scheme of a forward pass, whose weight gradient has the same. F45
// makes half as many products as F25, where its tiles are not mostly empty.
template <class Body>
void visit_forward_scheme(const Conv2dGeometry& g, Body body) {
  if (g.stride == 2)
    body.template operator()<Stride2>();
  else if (g.r == 3)
    body.template operator()<F43>();
  else if (std::min(g.oh, g.ow) > 2)
    body.template operator()<F45>();
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

// Tiles are ten times as fast as vectors: what Winograd leaves out does not make up for them.
template <class T>
bool on_tiles() {
  return std::is_same_v<T, bfloat16> && amx::tiles() != amx::Tiles::None;
}

bool takes_winograd(const Conv2dGeometry& g, ConvAlgorithm algorithm, bool tiles) {
  if (algorithm == ConvAlgorithm::Auto) algorithm = tiles ? ConvAlgorithm::Direct : fastest_algorithm(g);
  CHECK_AS(NotImplementedError, algorithm == ConvAlgorithm::Direct || has_winograd(g),
           "conv2d: Winograd's algorithm has no scheme for filters of ", g.r, " x ", g.s, " with stride ", g.stride,
           " and padding ", g.padding, "; use the direct algorithm");
  return algorithm == ConvAlgorithm::Winograd;
}

}  // namespace

bool has_winograd(const Conv2dGeometry& g) {
  const bool stride1 = g.stride == 1 && (g.r == 3 || g.r == 5), stride2 = g.stride == 2 && g.r == 3 && g.padding == 1;
  return g.r == g.s && (stride1 || stride2);
}

// Stride 1: Winograd is 2 to 3 times as fast as direct from 16 channels and images of 2 x 2 on. Stride 2: 1.1
// to 1.9 times from 16 channels on, unless most of a tile of 4 x 4 outputs lies outside the image.
ConvAlgorithm fastest_algorithm(const Conv2dGeometry& g) {
  const bool pays = g.stride == 1 || (std::min(g.c, g.k) >= 16 && std::min(g.oh, g.ow) > 2);
  return pays && has_winograd(g) ? ConvAlgorithm::Winograd : ConvAlgorithm::Direct;
}

template <class T>
void convolve(Stream stream, const Conv2dGeometry& g, ConvAlgorithm algorithm, Direction direction, const T* x,
              const float* w, const float* bias, const T* addend, T* y) {
  if (!takes_winograd(g, algorithm, on_tiles<T>())) {
    const DirectProblem problem = direct_problem(stream, g, direction, InputLayout::Blocked);
    if constexpr (std::is_same_v<T, bfloat16>)
      if (on_tiles<T>()) return amx::convolution(problem, x, w, bias, addend, y);
    return direct_convolution(problem, x, w, bias, addend, y);
  }
  const WinogradProblem problem = winograd_problem(stream, g, direction);
  if (g.stride == 2 && direction == Direction::BackwardInput)
    return winograd_convolution<Stride2Backward>(problem, x, w, bias, addend, y);
  visit_forward_scheme(g, [&]<class Scheme>() { winograd_convolution<Scheme>(problem, x, w, bias, addend, y); });
}

template <class T>
void weight_gradient(Stream stream, const Conv2dGeometry& g, ConvAlgorithm algorithm, const T* x, const T* dy,
                     float* dw) {
  const bool tiles = on_tiles<T>() && g.n >= 8;  // they are filled with 32 images
  if (!takes_winograd(g, algorithm, tiles)) {
    const DirectProblem problem = direct_problem(stream, g, Direction::Forward, InputLayout::Blocked);
    if constexpr (std::is_same_v<T, bfloat16>)
      if (tiles) return amx::weight_gradient(problem, x, dy, dw);
    return direct_weight_gradient(problem, x, dy, dw);
  }
  const WinogradProblem problem = winograd_problem(stream, g, Direction::Forward);
  visit_forward_scheme(g, [&]<class Scheme>() { winograd_weight_gradient<Scheme>(problem, x, dy, dw); });
}

template <class T>
void convolve_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const float* w, const float* bias, T* y) {
  direct_convolution(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x, w, bias,
                     static_cast<const T*>(nullptr), y);
}

template <class T>
void weight_gradient_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const T* dy, float* dw) {
  direct_weight_gradient(direct_problem(stream, g, Direction::Forward, InputLayout::Contiguous), x, dy, dw);
}

#define INSTANTIATE(T)                                                                                      \
  template void convolve(Stream, const Conv2dGeometry&, ConvAlgorithm, Direction, const T*, const float*,   \
                         const float*, const T*, T*);                                                       \
  template void weight_gradient(Stream, const Conv2dGeometry&, ConvAlgorithm, const T*, const T*, float*);  \
  template void convolve_nchw(Stream, const Conv2dGeometry&, const float*, const float*, const float*, T*); \
  template void weight_gradient_nchw(Stream, const Conv2dGeometry&, const float*, const T*, float*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
