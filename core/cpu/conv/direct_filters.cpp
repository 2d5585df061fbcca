// Direct convolutions: which taps meet which outputs, and the filters as right matrices.
#include <algorithm>

#include "ringgrad/core/cpu/conv/direct.h"
#include "ringgrad/core/cpu/conv/gemm.h"

namespace ringgrad::conv {
namespace {

// `count` rows of 16 columns each, as many of them in a row of words as a product has terms.
template <class Product>
void copy_rows(const float* from, int64_t from_stride, int64_t count, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < count; i += Product::kTerms, to += to_stride)
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes) {
      const float* const row = from + i * from_stride + lane;
      if constexpr (Product::kTerms == 1)
        store(to + lane, load(row));
      else
        store(to + lane, pair_of(load(row), load(row + from_stride)));
    }
}

}  // namespace

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
  return {stream, direction, layout, g.n, rows, columns, filter_shape(g)};
}

template <class Product>
int64_t direct_filter_floats(const DirectProblem& p) {
  return p.groups() * p.group() / Product::kTerms * p.filters.taps * p.filters.columns(p.direction) * kChannelBlock;
}

template <class Product>
void prepare_direct_filters(const DirectProblem& p, const float* w, float* prepared) {
  const int64_t blocks = p.filters.columns(p.direction), taps = p.filters.taps;
  const int64_t rows = p.groups() * p.group();  // of a tap
  ThreadWorkspaces workspaces(p.stream, 2 * taps * kChannelBlock * kChannelBlock);
  parallel_for(p.stream, blocks, 1, [&](int64_t column_block, int64_t) {
    const ThreadWorkspaces::Slice slice(workspaces);
    float* const block = slice.data() + taps * kChannelBlock * kChannelBlock;
    const int64_t panel = column_block / 2, width = panel_width(panel, blocks);
    const int64_t words = rows / Product::kTerms * taps;
    const RightMatrix packed = packed_panel(prepared + panel * words * kPanel, words, width);
    float* const to = prepared + panel * words * kPanel + column_block % 2 * packed.block_stride;
    for (int64_t row_block = 0; row_block < channel_blocks(rows); ++row_block) {
      load_filter_block(w, p.filters, p.direction, row_block, column_block, slice.data(), block);
      const int64_t channels = std::min(kChannelBlock, rows - row_block * kChannelBlock);
      // where the block's rows lie among those of its group
      const int64_t group = row_block * kChannelBlock / p.group(), first = row_block * kChannelBlock % p.group();
      for_each_phase(p, [&](const Phase& phase) {
        for (int64_t i = 0; i < phase.rows.taps; ++i)
          for (int64_t j = 0; j < phase.columns.taps; ++j) {
            const int64_t tap = (phase.rows.first + i * phase.rows.tap_step) * p.columns.filter + phase.columns.first +
                                j * phase.columns.tap_step;
            const int64_t row =
                phase.taps_before * rows + ((group * phase.rows.taps + i) * phase.columns.taps + j) * p.group() + first;
            copy_rows<Product>(block + tap * kChannelBlock, taps * kChannelBlock, channels,
                               to + row / Product::kTerms * packed.stride, packed.stride);
          }
      });
    }
  });
}

#define INSTANTIATE(Product)                                            \
  template int64_t direct_filter_floats<Product>(const DirectProblem&); \
  template void prepare_direct_filters<Product>(const DirectProblem&, const float*, float*)
INSTANTIATE(Float32Product);
INSTANTIATE(BFloat16Product);

}  // namespace ringgrad::conv
