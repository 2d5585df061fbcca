#include "ringgrad/core/cpu/conv/winograd.h"

#include <algorithm>

#include "ringgrad/core/cpu/conv/transforms_stride2.h"

namespace ringgrad::conv {

template <class Scheme, class Product>
void transform_filter_panel(const float* w, FilterShape shape, Direction direction, int64_t panel,
                            float* scratch, float* factors) {
  constexpr int kEdge = Scheme::Filter::kIn;
  constexpr int kTaps = kEdge * kEdge;
  constexpr int kFactors = kFactorEdge<Scheme>;
  const FactorLayout layout(kFactors, shape, direction, Product::kTerms);
  const int64_t width = panel_width(panel, layout.blocks);
  const int64_t plane = layout.plane(panel);
  const RightMatrix packed = packed_panel(factors, layout.rows, width);
  const bool turned = direction == Direction::BackwardInput;
  float* const block = scratch + kTaps * kChannelBlock * kChannelBlock;
  const auto transform_row = [&](int64_t row, int64_t lane, const auto& put) {
    const float* const from = block + row * kTaps * kChannelBlock + lane;
    transform<typename Scheme::Filter>(
        [&](int i, int j) {
          const int tap = i * kEdge + j;
          return load(from + (turned ? kTaps - 1 - tap : tap) * kChannelBlock);
        },
        put);
  };
  for (int64_t column = 0; column < width; column += kChannelBlock)
    for (int64_t row_block = 0; row_block < shape.rows(direction); ++row_block) {
      load_filter_block(w, shape, direction, row_block, (panel * kPanel + column) / kChannelBlock,
                        scratch, block);
      float* to = factors + row_block * kChannelBlock / Product::kTerms * packed.stride +
                  column / kChannelBlock * packed.block_stride;
      for (int64_t row = 0; row < kChannelBlock; row += Product::kTerms, to += packed.stride)
        for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes) {
          if constexpr (Product::kTerms == 1) {
            transform_row(row, lane, [&](int i, const Vector* v) {
              RINGGRAD_UNROLL
              for (int j = 0; j < kFactors; ++j)
                store(to + (i * kFactors + j) * plane + lane, v[j]);
            });
          } else {
            Vector first[kFactors][kFactors];
            transform_row(row, lane,
                          [&](int i, const Vector* v) { std::copy_n(v, kFactors, first[i]); });
            transform_row(row + 1, lane, [&](int i, const Vector* v) {
              RINGGRAD_UNROLL
              for (int j = 0; j < kFactors; ++j)
                store(to + (i * kFactors + j) * plane + lane, pair_of(first[i][j], v[j]));
            });
          }
        }
    }
}

#define INSTANTIATE(Scheme, Product)                                                          \
  template void transform_filter_panel<Scheme, Product>(const float*, FilterShape, Direction, \
                                                        int64_t, float*, float*)
#define INSTANTIATE_SCHEMES(Product) \
  INSTANTIATE(F43, Product);         \
  INSTANTIATE(F25, Product);         \
  INSTANTIATE(Stride2, Product);     \
  INSTANTIATE(Stride2Backward, Product)
INSTANTIATE_SCHEMES(Float32Product);
INSTANTIATE(F45, Float32Product);
INSTANTIATE_SCHEMES(BFloat16Product);
#undef INSTANTIATE_SCHEMES
#undef INSTANTIATE

}  // namespace ringgrad::conv
