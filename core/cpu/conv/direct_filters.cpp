// Direct convolutions: which taps contribute to which outputs, and the filters as right matrices.
#include <algorithm>

#include "ringgrad/core/cpu/conv/direct.h"
#include "ringgrad/core/cpu/conv/gemm.h"

namespace ringgrad::conv {
namespace {

// Copies a row of 16 columns. It becomes row `index` of the right matrix, or half of a row of
// words, whose other half is unchanged.
template <class Product>
void copy_row(const float* row, int64_t index, float* to, int64_t to_stride) {
  to += index / Product::kTerms * to_stride;
  for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes) {
    const Vector numbers = load(row + lane);
    if constexpr (Product::kTerms == 1) {
      store(to + lane, numbers);
    } else {
      const Vector halves =
          index % 2 == 0 ? pair_of(numbers, Vector{}) : pair_of(Vector{}, numbers);
      store(to + lane, reinterpret_cast<Vector>(reinterpret_cast<Words>(halves) |
                                                reinterpret_cast<Words>(load(to + lane))));
    }
  }
}

}  // namespace

AxisPhase Axis::phase(int64_t index) const {
  if (direction == Direction::Forward) return {output, filter, -padding, 0, 1};
  // Tap r takes output o of the convolution to output i stride + index of the gradient if i stride
  // + index + padding = o stride + r. So the taps are least, least + stride, …, and o falls as r
  // rises.
  const int64_t least = (index + padding) % stride;
  const int64_t taps = least < filter ? (filter - 1 - least) / stride + 1 : 0;
  const int64_t outputs = index < output ? (output - 1 - index) / stride + 1 : 0;
  return {outputs, taps, (index + padding - least) / stride - (taps - 1),
          least + stride * (taps - 1), -stride};
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

DirectProblem direct_problem(Stream stream, const Conv2dGeometry& g, Direction direction,
                             InputLayout layout) {
  const bool forward = direction == Direction::Forward;
  const Axis rows{direction, forward ? g.h : g.oh, forward ? g.oh : g.h, g.r, g.stride, g.padding};
  const Axis columns{direction, forward ? g.w : g.ow, forward ? g.ow : g.w, g.s, g.stride,
                     g.padding};
  return {stream, direction, layout, g.n, rows, columns, filter_shape(g)};
}

template <class Product>
void prepare_direct_filters(const DirectProblem& p, const float* w, float* prepared) {
  const int64_t blocks = p.filters.columns(p.direction);
  const int64_t taps = p.filters.taps;
  const int64_t rows = p.groups() * p.group();
  const int64_t words = filter_words<Product>(p);
  ThreadWorkspaces workspaces(p.stream, 2 * taps * kChannelBlock * kChannelBlock);
  parallel_for(p.stream, blocks, 1, [&](int64_t column_block, int64_t) {
    const ThreadWorkspaces::Slice slice(workspaces);
    float* const block = slice.data() + taps * kChannelBlock * kChannelBlock;
    const int64_t panel = column_block / 2;
    const int64_t width = panel_width(panel, blocks);
    const RightMatrix packed = packed_panel(prepared + panel * words * kPanel, words, width);
    float* const to = prepared + panel * words * kPanel + column_block % 2 * packed.block_stride;
    if (Product::kTerms > 1)
      for (int64_t i = 0; i < words; ++i) std::fill_n(to + i * packed.stride, kChannelBlock, 0.0f);
    for (int64_t row_block = 0; row_block < channel_blocks(rows); ++row_block) {
      load_filter_block(w, p.filters, p.direction, row_block, column_block, slice.data(), block);
      const int64_t channels = std::min(kChannelBlock, rows - row_block * kChannelBlock);
      // position of the block's rows in their group
      const int64_t group = row_block * kChannelBlock / p.group();
      const int64_t first = row_block * kChannelBlock % p.group();
      int64_t before = 0;  // words of the phases before this one
      for_each_phase(p, [&](const Phase& phase) {
        const int64_t row_words = tap_row_words<Product>(p, phase.columns.taps);
        // The last number of an odd row: see DirectConvolution's segments.
        const int64_t numbers = phase.columns.taps * p.group();
        const int64_t last =
            Product::kTerms > 1 && p.layout == InputLayout::Contiguous && numbers % 2 ? numbers - 1
                                                                                      : -1;
        for (int64_t i = 0; i < phase.rows.taps; ++i)
          for (int64_t j = 0; j < phase.columns.taps; ++j) {
            const int64_t tap = (phase.rows.first + i * phase.rows.tap_step) * p.columns.filter +
                                phase.columns.first + j * phase.columns.tap_step;
            const int64_t row =
                (before + (group * phase.rows.taps + i) * row_words) * Product::kTerms;
            for (int64_t c = 0; c < channels; ++c) {
              const int64_t number = j * p.group() + first + c;
              const int64_t index = row + number + (number == last);
              copy_row<Product>(block + (c * taps + tap) * kChannelBlock, index, to, packed.stride);
            }
          }
        before += p.groups() * phase.rows.taps * row_words;
      });
    }
  });
}

template void prepare_direct_filters<Float32Product>(const DirectProblem&, const float*, float*);
template void prepare_direct_filters<BFloat16Product>(const DirectProblem&, const float*, float*);

}  // namespace ringgrad::conv
