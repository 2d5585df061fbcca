#include "core/cpu/conv/direct_window.h"
#include "core/cpu/blocking.h"

#include <algorithm>

namespace ringgrad::conv {
DirectWindow::DirectWindow(const DirectProblem& problem, int64_t pixels) : problem_(problem) {
  const Axis &row = problem.rows, &column = problem.columns;
  const int64_t outputs = row.phase(0).outputs, width = column.phase(0).outputs;
  units_ = cpu::ceil_div(outputs, std::clamp<int64_t>(pixels / width, 1, outputs));
  rows_ = cpu::ceil_div(outputs, units_);
  units_ = cpu::ceil_div(outputs, rows_);
  const bool sparse = row.filter == 1 && column.filter == 1;
  source_step_ = sparse ? row.in_step() : 1;
  in_step_ = sparse ? 1 : row.in_step();
  height_ = (rows_ - 1) * in_step_ + row.end() - row.begin();
  columns_ = (width - 1) * in_step_ + column.end() - column.begin();
  const int64_t lines = cpu::ceil_div(height_ * pitch(), kBlock);
  plane_ = (lines + (lines + 1) % 2) * kBlock;  // an odd number of cache lines
}

void DirectWindow::load(const float* x, int64_t n, int64_t unit, const PaddedChannels& scale,
                        const PaddedChannels& shift, float* window) const {
  const int64_t h = problem_.rows.input, w = problem_.columns.input;
  const bool blocked = problem_.layout == InputLayout::Blocked;
  const int64_t top = unit * rows_ * in_step_ * source_step_ + problem_.rows.begin();
  for (int64_t group = 0; group < problem_.groups(); ++group) {
    const float* const image = x + (n * problem_.groups() + group) * problem_.group() * h * w;
    for (int64_t i = 0; i < height_; ++i) {
      float* const to = window + group * plane_ + i * pitch();
      const int64_t row = top + i * source_step_;
      if (row < 0 || row >= h)
        std::fill_n(to, pitch(), 0.0f);
      else
        load_row(image + row * w * (blocked ? kBlock : 1), h * w, group, scale, shift, to);
    }
  }
}

void DirectWindow::load_row(const float* from, int64_t channel_stride, int64_t group, const PaddedChannels& scale,
                            const PaddedChannels& shift, float* to) const {
  const int64_t left = problem_.columns.begin(), w = problem_.columns.input, size = problem_.group();
  // window columns [first, last) lie inside the image
  const int64_t first = std::min(columns_, std::max<int64_t>(0, cpu::ceil_div(-left, source_step_)));
  const int64_t last = std::clamp<int64_t>(cpu::ceil_div(w - left, source_step_), first, columns_);
  std::fill_n(to, first * size, 0.0f);
  std::fill_n(to + last * size, (columns_ - last) * size, 0.0f);
  if (problem_.layout == InputLayout::Contiguous) {
    for (int64_t c = 0; c < size; ++c)
      for (int64_t j = first; j < last; ++j) {
        float value = from[c * channel_stride + left + j * source_step_];
        if (scale.block(0)) {
          value = scale.block(0)[c] * value + shift.block(0)[c];
          value = value < 0 ? 0 : value;
        }
        to[j * size + c] = value;
      }
    return;
  }
  for (int64_t lane = 0; lane < kBlock; lane += kLanes) {
    const float* const pixels = from + left * kBlock + lane;
    if (scale.block(group)) {
      const Vector a = conv::load(scale.block(group) + lane), b = conv::load(shift.block(group) + lane);
      for (int64_t j = first; j < last; ++j)
        store(to + j * kBlock + lane, relu(conv::load(pixels + j * source_step_ * kBlock) * a + b));
    } else {
      for (int64_t j = first; j < last; ++j)
        store(to + j * kBlock + lane, conv::load(pixels + j * source_step_ * kBlock));
    }
  }
}

}  // namespace ringgrad::conv
