// Direct convolutions of every filter size, stride and padding, as matrix products whose left
// matrix is a window of the image. They serve 1 x 1 filters, first layers with one or three
// channels, and all that the Winograd schemes do not cover.
#pragma once

#include "ringgrad/core/cpu/conv/filters.h"

namespace ringgrad::conv {

// The layout of a direct convolution's input.
enum class InputLayout {
  // Channel-blocked, as everywhere in this folder.
  Blocked,
  // [N, C, H, W], for first layers: their few channels would leave most lanes of a block empty.
  Contiguous,
};

// The filter taps that contribute to one phase of the outputs along one axis. Outputs phase, phase
// + out_step, … use the same taps. The forward pass has out_step 1 and uses all taps; the data
// gradient of stride 2 uses every second tap.
struct AxisPhase {
  // The number of outputs that the phase has.
  int64_t outputs;
  // The number of taps; their inputs are neighbours.
  int64_t taps;
  // Output i begins at input i in_step + offset.
  int64_t offset;
  // The filter's taps in the order of the inputs: first, first + tap_step, …
  int64_t first;
  int64_t tap_step;
};

// A convolution along one axis.
struct Axis {
  Direction direction;
  int64_t input;
  int64_t output;
  int64_t filter;
  int64_t stride;
  int64_t padding;

  int64_t in_step() const { return direction == Direction::Forward ? stride : 1; }
  int64_t out_step() const { return direction == Direction::Forward ? 1 : stride; }
  AxisPhase phase(int64_t index) const;  // 0 <= index < out_step()
  // The inputs that output i of any phase may use: i in_step() + begin() … i in_step() + end() - 1.
  int64_t begin() const;
  int64_t end() const;
};

struct DirectProblem {
  Stream stream;
  Direction direction;
  InputLayout layout;
  int64_t n;
  Axis rows;
  Axis columns;
  FilterShape filters;

  int64_t phases() const { return rows.out_step() * columns.out_step(); }
  // The number of channels side by side at a pixel of a window, and the number of such groups.
  int64_t group() const { return layout == InputLayout::Blocked ? kChannelBlock : filters.c; }
  int64_t groups() const { return layout == InputLayout::Blocked ? filters.rows(direction) : 1; }
  BlockedShape out() const { return {n, filters.columns(direction), rows.output, columns.output}; }
};

// The outputs (row + i out_step, column + j out_step), which use the same taps. Some phases have no
// taps.
struct Phase {
  AxisPhase rows;
  AxisPhase columns;
  int64_t row;
  int64_t column;
  int64_t taps_before;  // in the phases before this one
};

template <class Body>
void for_each_phase(const DirectProblem& p, const Body& body) {
  int64_t taps = 0;
  for (int64_t i = 0; i < p.phases(); ++i) {
    const int64_t row = i / p.columns.out_step();
    const int64_t column = i % p.columns.out_step();
    Phase phase{p.rows.phase(row), p.columns.phase(column), row, column, taps};
    if (phase.columns.taps == 0) phase.rows.taps = 0;  // no taps at all
    body(phase);
    taps += phase.rows.taps * phase.columns.taps;
  }
}

DirectProblem direct_problem(Stream stream, const Conv2dGeometry& geometry, Direction direction,
                             InputLayout layout);

// The words of a filter's row of taps for one group of channels, [tap column][channel of the
// group]; see product.h.
template <class Product>
int64_t tap_row_words(const DirectProblem& problem, int64_t taps) {
  return (taps * problem.group() + Product::kTerms - 1) / Product::kTerms;
}

// Filters as right matrices: [panel of 32 columns][phase][group][tap row][word][column]. Returns
// the number of words per column.
template <class Product>
int64_t filter_words(const DirectProblem& problem) {
  int64_t words = 0;
  for_each_phase(problem, [&](const Phase& phase) {
    words +=
        problem.groups() * phase.rows.taps * tap_row_words<Product>(problem, phase.columns.taps);
  });
  return words;
}
template <class Product>
void prepare_direct_filters(const DirectProblem& problem, const float* w, float* prepared);

// y (blocked) = the convolution of x with w [K, C, R, S], plus bias[channel of y] and an image
// `addend` like y (null: none). X and Y are float or bfloat16; a contiguous x is float. Y
// determines the kind of product.
template <class X, class Y>
void direct_convolution(const DirectProblem& problem, const X* x, const float* w, const float* bias,
                        const Y* addend, Y* y);

// Computes dw [K, C, R, S] from x and dy (blocked). Y determines the kind of product. REQUIRES:
// direction Forward.
template <class X, class Y>
void direct_weight_gradient(const DirectProblem& problem, const X* x, const Y* dy, float* dw);

}  // namespace ringgrad::conv
