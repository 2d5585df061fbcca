#include "core/cpu/conv/winograd_filters.h"

#include "core/cpu/conv/transforms_stride2.h"

namespace ringgrad::conv {

template <class Scheme>
void transform_filter_panel(const float* w, FilterShape shape, Direction direction, int64_t panel, float* scratch,
                            float* factors) {
  constexpr int kEdge = Scheme::Filter::kIn, kTaps = kEdge * kEdge;
  const FactorLayout layout(shape, direction);
  const int64_t width = panel_width(panel, layout.blocks), plane = layout.plane(panel);
  const bool turned = direction == Direction::BackwardInput;
  float* const block = scratch + kTaps * kBlock * kBlock;
  for (int64_t column = 0; column < width; column += kBlock)
    for (int64_t row_block = 0; row_block < layout.rows / kBlock; ++row_block) {
      load_filter_block(w, shape, direction, row_block, (panel * kPanel + column) / kBlock, scratch, block);
      for (int64_t row = 0; row < kBlock; ++row)
        for (int64_t lane = 0; lane < kBlock; lane += kLanes) {
          const float* const from = block + row * kTaps * kBlock + lane;
          float* const to = factors + (row_block * kBlock + row) * width + column + lane;
          transform<typename Scheme::Filter>(
              [&](int i, int j) {
                const int tap = i * kEdge + j;
                return load(from + (turned ? kTaps - 1 - tap : tap) * kBlock);
              },
              [&](int i, int j, Vector v) { store(to + (i * 6 + j) * plane, v); });
        }
    }
}

template void transform_filter_panel<F43>(const float*, FilterShape, Direction, int64_t, float*, float*);
template void transform_filter_panel<F25>(const float*, FilterShape, Direction, int64_t, float*, float*);
template void transform_filter_panel<Stride2>(const float*, FilterShape, Direction, int64_t, float*, float*);
template void transform_filter_panel<Stride2Backward>(const float*, FilterShape, Direction, int64_t, float*, float*);

}  // namespace ringgrad::conv
