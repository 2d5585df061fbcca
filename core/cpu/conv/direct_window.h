// The part of an image that a unit of work of a direct convolution needs, copied into scratch
// memory. It includes the border's zeros, and leaves out pixels that a 1 x 1 filter of stride 2
// skips.
#pragma once

#include "ringgrad/core/cpu/conv/direct.h"

namespace ringgrad::conv {

// A word of a window (see product.h) holds one number, or the two bfloat16 numbers that the
// reduction takes together. If a row has an odd number of outputs, the second number of the last
// word is multiplied by zero. If that number is infinite, the weight gradient is NaN, although no
// output of the tap uses it.
enum class Pairs {
  None,
  Channels,    // two channels of a pixel
  Neighbours,  // each number, and the next one in its row
  Outputs,     // each number, and the same channel of the next output's pixel
};

// A unit computes output rows [first, first + rows) of every phase of an image. The window is
// [group][row][column][channel] in words.
class DirectWindow {
 public:
  // `pixels` is about the number of outputs of a phase that a unit should have.
  DirectWindow(const DirectProblem& problem, Pairs pairs, int64_t pixels);

  int64_t rows() const { return rows_; }  // output rows of a unit
  int64_t units_per_image() const { return units_; }
  int64_t in_step() const { return in_step_; }         // window pixels from output to output
  int64_t pixel() const { return pixel_; }             // words of a pixel
  int64_t pitch() const { return columns_ * pixel_; }  // words from row to row
  int64_t plane() const { return plane_; }             // words from group to group
  // The size of the window, including what multiply() reads beyond it.
  int64_t floats() const { return problem_.groups() * plane_ + 4 * in_step_ * pixel(); }
  // Returns the position of a phase's first tap in the window, for the unit's first output.
  int64_t offset(const AxisPhase& row, const AxisPhase& column) const {
    return (row.offset - problem_.rows.begin()) * pitch() +
           (column.offset - problem_.columns.begin()) * pixel();
  }
  // Returns true if a phase's outputs of all rows follow each other in the window, as for filters
  // of one column such as 1 x 1.
  bool joins_rows(const AxisPhase& column) const {
    return in_step_ == 1 && columns_ == column.outputs;
  }

  // Copies the window of a unit of image n.
  template <class X>
  void load(const X* x, int64_t n, int64_t unit, float* window) const;

 private:
  template <class Product, class X>
  void load_blocked_row(const X* from, float* to) const;
  void load_contiguous_row(const float* from, int64_t channel_stride, float* to) const;
  void pair_numbers(float* row) const;

  const DirectProblem& problem_;
  Pairs pairs_;
  int64_t pixel_;
  int64_t rows_;
  int64_t units_;
  // The step from output to output in the window, and the step in the image from one window pixel
  // to the next.
  int64_t in_step_;
  int64_t source_step_;
  // The window's size.
  int64_t height_;
  int64_t columns_;
  // The window's columns [first_inside_, last_inside_) lie in the image.
  int64_t first_inside_;
  int64_t last_inside_;
  int64_t plane_;
  // For Neighbours and Outputs: the distance between the two numbers of a word.
  int64_t apart_;
};

}  // namespace ringgrad::conv
