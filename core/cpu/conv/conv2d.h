// Two-dimensional convolution on channel-blocked images, for training: forward pass, data gradient, weight gradient.
//
//   x  [N, ⌈C/16⌉, H, W, 16]     y, dy  [N, ⌈K/16⌉, OH, OW, 16]     w, dw  [K, C, R, S]     float32
//
// Images are aligned to 4 bytes (to 64 for full speed) and their padding channels are zero, in and out. Outputs are
// overwritten. Results do not depend on the number of threads. Nothing is checked here: the caller has made the
// geometry with conv2d_geometry. Every function may be called by several threads at once; throws OutOfMemoryError.
#pragma once

#include "core/cpu/conv/direct.h"
#include "core/cpu/conv/filters.h"
#include "core/cpu/conv/fusion.h"

namespace ringgrad::conv {

enum class Algorithm {
  Direct,    // every geometry
  Winograd,  // 3 x 3 with stride 1, or with stride 2 and padding 1; 5 x 5 with stride 1
};
bool supports(Algorithm algorithm, const Conv2dGeometry& geometry);

// The algorithm with the shortest time for a direction: by rules measured on AVX-512, see bench/conv_bench.cpp.
Algorithm fastest_algorithm(const Conv2dGeometry& geometry);

// Filters, and the form in which an algorithm uses them. `prepared` may be null: prepare_filters is then part of the
// call.
struct Filters {
  const float* plain = nullptr;
  const float* prepared = nullptr;
};
// How many floats the prepared form has; 0 where the algorithm transforms filters on the way, and `prepared` must be
// null.
int64_t prepared_filter_floats(const Conv2dGeometry& geometry, Algorithm algorithm, Direction direction);
void prepare_filters(Stream stream, const Conv2dGeometry& geometry, Algorithm algorithm, Direction direction,
                     const float* w, float* prepared);

void forward(Stream stream, const Conv2dGeometry& geometry, Algorithm algorithm, const float* x, Filters w, float* y,
             const Prologue& prologue = {}, const Epilogue& epilogue = {});
void backward_input(Stream stream, const Conv2dGeometry& geometry, Algorithm algorithm, const float* dy, Filters w,
                    float* dx);
void backward_weight(Stream stream, const Conv2dGeometry& geometry, Algorithm algorithm, const float* x,
                     const float* dy, float* dw, const Prologue& prologue = {});

// The same for first layers: x is [N, C, H, W] contiguous; y and dy are channel-blocked. Always direct; the prepared
// filters are not those of the functions above.
int64_t prepared_filter_floats_nchw(const Conv2dGeometry& geometry);
void prepare_filters_nchw(Stream stream, const Conv2dGeometry& geometry, const float* w, float* prepared);
void forward_nchw(Stream stream, const Conv2dGeometry& geometry, const float* x, Filters w, float* y,
                  const Prologue& prologue = {}, const Epilogue& epilogue = {});
void backward_weight_nchw(Stream stream, const Conv2dGeometry& geometry, const float* x, const float* dy, float* dw,
                          const Prologue& prologue = {});

}  // namespace ringgrad::conv
