#include "core/cpu/conv/conv2d.h"

#include "core/check.h"
#include "core/cpu/conv/transforms_stride2.h"
#include "core/cpu/conv/winograd.h"
#include "core/cpu/conv/winograd_filters.h"

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

WinogradProblem winograd_problem(Stream stream, const Conv2dGeometry& g, Direction direction, Filters w) {
  const bool forward = direction == Direction::Forward;
  const int64_t backward_offset = g.stride == 2 ? 0 : g.r - 1 - g.padding;
  return {stream,
          forward ? input_shape(g) : output_shape(g),
          forward ? output_shape(g) : input_shape(g),
          forward ? g.padding : backward_offset,
          filter_shape(g),
          direction,
          w.plain,
          w.prepared};
}

DirectProblem direct_problem(Stream stream, const Conv2dGeometry& g, Direction direction, Filters w,
                             InputLayout layout = InputLayout::Blocked) {
  DirectProblem problem = direct_problem(stream, g, direction, layout);
  problem.w = w.plain;
  problem.prepared = w.prepared;
  return problem;
}

void convolve(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, Direction direction, const float* x,
              Filters w, float* y, const Prologue& prologue, const Epilogue& epilogue) {
  ASSERT(supports(algorithm, g));
  if (algorithm == Algorithm::Direct)
    return direct_convolution(direct_problem(stream, g, direction, w), x, y, prologue, epilogue);
  visit_scheme(g, direction, [&]<class Scheme>() {
    winograd_convolution<Scheme>(winograd_problem(stream, g, direction, w), x, y, prologue, epilogue);
  });
}

}  // namespace

bool supports(Algorithm algorithm, const Conv2dGeometry& g) {
  const bool stride1 = g.stride == 1 && (g.r == 3 || g.r == 5), stride2 = g.stride == 2 && g.r == 3 && g.padding == 1;
  return algorithm == Algorithm::Direct || (g.r == g.s && (stride1 || stride2));
}

Algorithm fastest_algorithm(const Conv2dGeometry& g) {
  return supports(Algorithm::Winograd, g) ? Algorithm::Winograd : Algorithm::Direct;
}

int64_t prepared_filter_floats(const Conv2dGeometry& g, Algorithm algorithm, Direction direction) {
  if (algorithm == Algorithm::Direct) return direct_filter_floats(direct_problem({}, g, direction, Filters{}));
  int64_t floats = 0;
  visit_scheme(g, direction, [&]<class Scheme>() {
    const WinogradProblem problem = winograd_problem({}, g, direction, Filters{});
    if (keeps_factors<Scheme>(problem)) floats = FactorLayout(problem.filters, direction).floats();
  });
  return floats;
}

void prepare_filters(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, Direction direction, const float* w,
                     float* prepared) {
  if (algorithm == Algorithm::Direct)
    return prepare_direct_filters(direct_problem(stream, g, direction, Filters{w}), prepared);
  visit_scheme(g, direction, [&]<class Scheme>() {
    transform_filters<Scheme>(winograd_problem(stream, g, direction, Filters{w}), prepared);
  });
}

void forward(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const float* x, Filters w, float* y,
             const Prologue& prologue, const Epilogue& epilogue) {
  convolve(stream, g, algorithm, Direction::Forward, x, w, y, prologue, epilogue);
}

void backward_input(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const float* dy, Filters w,
                    float* dx) {
  convolve(stream, g, algorithm, Direction::BackwardInput, dy, w, dx, {}, {});
}

void backward_weight(Stream stream, const Conv2dGeometry& g, Algorithm algorithm, const float* x, const float* dy,
                     float* dw, const Prologue& prologue) {
  ASSERT(supports(algorithm, g));
  if (algorithm == Algorithm::Direct)
    return direct_weight_gradient(direct_problem(stream, g, Direction::Forward, Filters{}), x, dy, dw, prologue);
  const WinogradProblem problem = winograd_problem(stream, g, Direction::Forward, Filters{});
  if (g.stride == 2)
    winograd_weight_gradient<Stride2>(problem, x, dy, dw, prologue);
  else if (g.r == 3)
    winograd_weight_gradient<F43>(problem, x, dy, dw, prologue);
  else
    winograd_weight_gradient<F25>(problem, x, dy, dw, prologue);
}

int64_t prepared_filter_floats_nchw(const Conv2dGeometry& g) {
  return direct_filter_floats(direct_problem({}, g, Direction::Forward, Filters{}, InputLayout::Contiguous));
}

void prepare_filters_nchw(Stream stream, const Conv2dGeometry& g, const float* w, float* prepared) {
  prepare_direct_filters(direct_problem(stream, g, Direction::Forward, Filters{w}, InputLayout::Contiguous), prepared);
}

void forward_nchw(Stream stream, const Conv2dGeometry& g, const float* x, Filters w, float* y, const Prologue& prologue,
                  const Epilogue& epilogue) {
  direct_convolution(direct_problem(stream, g, Direction::Forward, w, InputLayout::Contiguous), x, y, prologue,
                     epilogue);
}

void backward_weight_nchw(Stream stream, const Conv2dGeometry& g, const float* x, const float* dy, float* dw,
                          const Prologue& prologue) {
  direct_weight_gradient(direct_problem(stream, g, Direction::Forward, Filters{}, InputLayout::Contiguous), x, dy, dw,
                         prologue);
}

}  // namespace ringgrad::conv
