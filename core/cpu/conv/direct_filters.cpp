// Direct convolutions: which taps meet which outputs, and the filters as right matrices.
#include <algorithm>

#include "core/cpu/conv/direct.h"
#include "core/cpu/conv/gemm.h"
#include "core/parallel.h"

namespace ringgrad::conv {

AxisPhase Axis::phase(int64_t index) const {
  if (direction == Direction::Forward) return {output, filter, -padding, 0, 1};
  // Input o meets output i stride + index through tap r where i stride + index + padding = o stride + r. So the taps
  // are least, least + stride, …, and o falls as r rises.
  const int64_t least = (index + padding) % stride;
  const int64_t taps = least < filter ? (filter - 1 - least) / stride + 1 : 0;
  const int64_t outputs = index < output ? (output - 1 - index) / stride + 1 : 0;
  return {outputs, taps, (index + padding - least) / stride - (taps - 1), least + stride * (taps - 1), -stride};
}

int64_t Axis::begin() const {
  int64_t least = INT64_MAX;
  for (int64_t i = 0; i < out_step(); ++i)
    if (phase(i).taps > 0) least = std::min(least, phase(i).offset);
  return least;
}

int64_t Axis::end() const {
  int64_t most = INT64_MIN;
  for (int64_t i = 0; i < out_step(); ++i)
    if (phase(i).taps > 0) most = std::max(most, phase(i).offset + phase(i).taps);
  return most;
}

DirectProblem direct_problem(Stream stream, const Conv2dGeometry& g, Direction direction, InputLayout layout) {
  const bool forward = direction == Direction::Forward;
  const Axis rows{direction, forward ? g.h : g.oh, forward ? g.oh : g.h, g.r, g.stride, g.padding};
  const Axis columns{direction, forward ? g.w : g.ow, forward ? g.ow : g.w, g.s, g.stride, g.padding};
  return {stream, direction, layout, g.n, rows, columns, filter_shape(g), nullptr, nullptr};
}

int64_t direct_filter_floats(const DirectProblem& p) {
  return p.groups() * p.group() * p.filters.taps * p.filters.columns(p.direction) * kBlock;
}

void prepare_direct_filters(const DirectProblem& p, float* prepared) {
  const int64_t blocks = p.filters.columns(p.direction), taps = p.filters.taps;
  const int64_t rows = p.groups() * p.group();
  ThreadWorkspaces workspaces(p.stream, 2 * taps * kBlock * kBlock);
  parallel_for(p.stream, blocks, 1, [&](int64_t column_block, int64_t) {
    const ThreadWorkspaces::Slice slice(workspaces);
    float* const block = slice.data() + taps * kBlock * kBlock;
    const int64_t panel = column_block / 2, width = panel_width(panel, blocks);
    float* const to = prepared + panel * rows * taps * kPanel + column_block % 2 * kBlock;
    for (int64_t row_block = 0; row_block < channel_blocks(rows); ++row_block) {
      load_filter_block(p.w, p.filters, p.direction, row_block, column_block, slice.data(), block);
      const int64_t channels = std::min(kBlock, rows - row_block * kBlock);
      // where the block's rows lie among those of its group
      const int64_t group = row_block * kBlock / p.group(), first = row_block * kBlock % p.group();
      for (int64_t phase = 0, before = 0; phase < p.phases(); ++phase) {
        const AxisPhase y = p.rows.phase(phase / p.columns.out_step());
        const AxisPhase x = p.columns.phase(phase % p.columns.out_step());
        for (int64_t i = 0; i < y.taps; ++i)
          for (int64_t j = 0; j < x.taps; ++j) {
            const int64_t tap = (y.first + i * y.tap_step) * p.columns.filter + x.first + j * x.tap_step;
            const int64_t row = before * rows + ((group * y.taps + i) * x.taps + j) * p.group() + first;
            for (int64_t c = 0; c < channels; ++c)
              std::copy_n(block + (c * taps + tap) * kBlock, kBlock, to + (row + c) * width);
          }
        before += y.taps * x.taps;
      }
    }
  });
}

}  // namespace ringgrad::conv
