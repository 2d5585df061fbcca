#include "ringgrad/core/cpu/conv/direct_window.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ringgrad::conv {
DirectWindow::DirectWindow(const DirectProblem& problem, Pairs pairs, int64_t pixels)
    : problem_(problem),
      pairs_(pairs),
      pixel_(problem.group() / (pairs == Pairs::Channels ? 2 : 1)) {
  const Axis& row = problem.rows;
  const Axis& column = problem.columns;
  const int64_t outputs = row.phase(0).outputs;
  const int64_t width = column.phase(0).outputs;
  units_ = cpu::ceil_div(outputs, std::clamp<int64_t>(pixels / width, 1, outputs));
  rows_ = cpu::ceil_div(outputs, units_);
  units_ = cpu::ceil_div(outputs, rows_);
  const bool sparse = row.filter == 1 && column.filter == 1;
  source_step_ = sparse ? row.in_step() : 1;
  in_step_ = sparse ? 1 : row.in_step();
  height_ = (rows_ - 1) * in_step_ + row.end() - row.begin();
  columns_ = (width - 1) * in_step_ + column.end() - column.begin();
  first_inside_ =
      std::min(columns_, std::max<int64_t>(0, cpu::ceil_div(-column.begin(), source_step_)));
  last_inside_ = std::clamp(cpu::ceil_div(column.input - column.begin(), source_step_),
                            first_inside_, columns_);
  const int64_t lines = cpu::ceil_div(height_ * pitch(), kChannelBlock);
  plane_ = (lines + (lines + 1) % 2) * kChannelBlock;  // an odd number of cache lines
  apart_ = pairs == Pairs::Outputs ? in_step_ * pixel_ : 1;
}

template <class X>
void DirectWindow::load(const X* x, int64_t n, int64_t unit, float* window) const {
  const int64_t h = problem_.rows.input;
  const int64_t w = problem_.columns.input;
  const int64_t left = problem_.columns.begin();
  const int64_t top = unit * rows_ * in_step_ * source_step_ + problem_.rows.begin();
  for (int64_t group = 0; group < problem_.groups(); ++group) {
    const X* const image = x + (n * problem_.groups() + group) * problem_.group() * h * w;
    for (int64_t i = 0; i < height_; ++i) {
      float* const to = window + group * plane_ + i * pitch();
      const int64_t row = top + i * source_step_;
      if (row < 0 || row >= h) {
        std::fill_n(to, pitch(), 0.0f);
        continue;
      }
      std::fill_n(to, first_inside_ * pixel(), 0.0f);
      std::fill_n(to + last_inside_ * pixel(), (columns_ - last_inside_) * pixel(), 0.0f);
      if constexpr (std::is_same_v<X, bfloat16>)
        if (pairs_ == Pairs::Channels) {
          load_blocked_row<BFloat16Product>(image + (row * w + left) * kChannelBlock, to);
          continue;
        }
      if (problem_.layout == InputLayout::Blocked)
        load_blocked_row<Float32Product>(image + (row * w + left) * kChannelBlock, to);
      else if constexpr (std::is_same_v<X, float>)
        load_contiguous_row(image + row * w + left, h * w, to);
      if (pairs_ != Pairs::None) pair_numbers(to);
    }
  }
}

template <class Product, class X>
void DirectWindow::load_blocked_row(const X* from, float* to) const {
  for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
    for (int64_t j = first_inside_; j < last_inside_; ++j)
      store(Product::neighbours(to + (j * kChannelBlock + lane) / Product::kTerms),
            conv::load(from + j * source_step_ * kChannelBlock + lane));
}

void DirectWindow::load_contiguous_row(const float* from, int64_t channel_stride, float* to) const {
  for (int64_t c = 0; c < problem_.group(); ++c)
    for (int64_t j = first_inside_; j < last_inside_; ++j)
      to[j * problem_.group() + c] = from[c * channel_stride + j * source_step_];
}

// Writes the words of a row over its numbers. Zeros follow, because numbers beyond the row are
// either loaded later or never used.
void DirectWindow::pair_numbers(float* row) const {
  std::fill_n(row + pitch(), apart_, 0.0f);
  int64_t i = 0;
  for (; i + kLanes <= pitch(); i += kLanes)
    store(row + i, pair_of(conv::load(row + i), conv::load(row + i + apart_)));
  for (; i < pitch(); ++i) {
    const bfloat16 pair[] = {row[i], row[i + apart_]};
    std::memcpy(row + i, pair, sizeof(pair));
  }
}

template void DirectWindow::load(const float*, int64_t, int64_t, float*) const;
template void DirectWindow::load(const bfloat16*, int64_t, int64_t, float*) const;

}  // namespace ringgrad::conv
