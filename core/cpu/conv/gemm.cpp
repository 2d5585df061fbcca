#include "ringgrad/core/cpu/conv/gemm.h"

#include <algorithm>

namespace ringgrad::conv {
namespace {

// Note [Register tiles]
// A tile of rows x vectors accumulators stays in registers for the whole reduction. Each step loads
// `vectors` vectors of the right matrix and broadcasts one number per row. With 32 registers a tile
// of 12 x 2 leaves room for the operands, and 24 independent sums hide the latency of the
// multiply-add (4 cycles, two per cycle). With 16 registers it is 6 x 2. A narrow tile is 16 x 1:
// its broadcasts, one for each multiply-add, just keep up.
constexpr int kWideRows = kRegisters == 32 ? 12 : 6;
constexpr int kNarrowRows = kRegisters == 32 ? 16 : 8;

// For the first tile of its columns the right matrix comes from the third-level cache, and the
// processor does not prefetch beyond a page on its own. Measured on Cascade Lake with 256 x 256
// factors: 12 rows +35 %, 48 rows +15 %. A narrow tile does not prefetch: its factors are few, and
// it already issues as many loads as it can.
constexpr int64_t kFetchAhead = 1024;  // floats

// Computes the rows from `row` on and the columns from `column` on, whose right matrix begins at
// `at`. It is a function of its own, because inlined it would share the general registers with the
// loops around it (products of 16 channels +8 %).
template <class Product, int kRows, int kVectors, bool kAccumulate>
[[gnu::noinline]] void tile(const LeftMatrix& left, int64_t row, const RightMatrix& right,
                            int64_t column, const int64_t* at, float* c, int64_t c_stride) {
  using Sum = typename Product::Sum;
  Sum sum[kRows][kVectors];
  RINGGRAD_UNROLL
  for (int i = 0; i < kRows; ++i) RINGGRAD_UNROLL
  for (int j = 0; j < kVectors; ++j) sum[i][j] = Sum{};
  const float* const a = left.data + row * left.row_stride;
  const float* b = right.data + at[0];
  c += row * c_stride + column;

  if constexpr (kAccumulate)  // needed at the end
    for (int i = 0; i < kRows; ++i) prefetch(c + i * c_stride);

  // Rows are addressed in groups, from one pointer each, so that a step has few instructions
  // besides its loads and sums: 24 for 12 sums. An address may have an index times 1, 2, 4 or 8, so
  // a group of eight rows takes four general registers for multiples of the stride. A tile of more
  // than eight rows and two vectors has no room for these beside its second pointer.
  constexpr int kGroup = kRows > 8 && kVectors > 1 ? 4 : 8;
  constexpr int kGroups = (kRows + kGroup - 1) / kGroup;
  const int64_t row_stride = left.row_stride;
  const int64_t step_stride = left.step_stride;
  const int64_t steps = left.steps;
  const int64_t b_stride = right.stride;
  const int64_t b_next = kVectors > 1 ? at[1] - at[0] : 0;
  for (int64_t segment = 0; segment < left.segment_count; ++segment) {
    const float* group[kGroups];
    RINGGRAD_UNROLL
    for (int g = 0; g < kGroups; ++g)
      group[g] = a + left.segments[segment] + kGroup * g * row_stride;
    for (const float* const end = b + steps * b_stride; b != end; b += b_stride) {
      Vector factor[kVectors];
      factor[0] = in_register(load(b));
      if constexpr (kVectors > 1) {
        factor[1] = in_register(load(b + b_next));
        prefetch(b + kFetchAhead);
        // Otherwise it is in the same cache line.
        if constexpr (kLanes == kChannelBlock) prefetch(b + b_next + kFetchAhead);
      }
      RINGGRAD_UNROLL
      for (int i = 0; i < kRows; ++i) RINGGRAD_UNROLL
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = Product::multiply_add(sum[i][j], group[i / kGroup] + i % kGroup * row_stride,
                                          factor[j]);
      RINGGRAD_UNROLL
      for (int g = 0; g < kGroups; ++g) group[g] += step_stride;
    }
  }
  RINGGRAD_UNROLL
  for (int i = 0; i < kRows; ++i) RINGGRAD_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    Vector total;
    if constexpr (Product::kScaled)
      total = __builtin_convertvector(sum[i][j], Vector) *
              (left.scales[row + i] * load(right.scales + column + j * kLanes));
    else
      total = sum[i][j];
    float* const to = c + i * c_stride + j * kLanes;
    // A sum of partial sums has a smaller error than one long sum.
    store(to, kAccumulate ? load(to) + total : total);
  }
}

// Returns how many rows the next tile takes. It is as many as fit, but 16 are split into 8 + 8
// rather than 12 + 4, and 8 into 4 + 4 rather than 6 + 2. Five rows are the taps of a row of 5 x 5
// filters on one channel, and nine those of 3 x 3 filters on three channels.
template <int kMaxRows>
int64_t next_rows(int64_t left) {
  if (kMaxRows == 12 && left > 12 && left <= 16) return 8;
  if (kMaxRows == 6) return left <= 4 || left == 7 || left == 8 ? 4 : 6;
  if (left == 5 || (left == 9 && kMaxRows > 8)) return left;
  return std::min<int64_t>(kMaxRows, (left + 3) / 4 * 4);
}

template <class Product, int kVectors, bool kAccumulate>
void column_strip(const LeftMatrix& left, int64_t rows, const RightMatrix& right, int64_t column,
                  const int64_t* at, float* c, int64_t c_stride) {
  constexpr int kMaxRows = kVectors == 2 ? kWideRows : kNarrowRows;
  for (int64_t row = 0; row < rows;) {
    const int64_t count = next_rows<kMaxRows>(rows - row);
    const auto run = [&]<int kRows>() {
      if constexpr (kRows <= kMaxRows)
        if (count == kRows)
          tile<Product, kRows, kVectors, kAccumulate>(left, row, right, column, at, c, c_stride);
    };
    run.template operator()<4>();
    if constexpr (kMaxRows != 6) run.template operator()<5>();
    if constexpr (kMaxRows == 6) run.template operator()<6>();
    run.template operator()<8>();
    run.template operator()<9>();
    run.template operator()<12>();
    run.template operator()<16>();
    row += count;
  }
}

template <class Product, bool kAccumulate>
void multiply_panel(const LeftMatrix& left, int64_t rows, const RightMatrix& right, int64_t width,
                    float* c, int64_t c_stride) {
  for (int64_t j = 0; j < width;) {
    // position of the strip's vectors in a row of the right matrix
    const auto offset = [&](int64_t at) {
      return at / kChannelBlock * right.block_stride + at % kChannelBlock;
    };
    const int64_t at[] = {offset(j), offset(j + kLanes)};
    if (j + 2 * kLanes <= width) {
      column_strip<Product, 2, kAccumulate>(left, rows, right, j, at, c, c_stride);
      j += 2 * kLanes;
    } else {
      column_strip<Product, 1, kAccumulate>(left, rows, right, j, at, c, c_stride);
      j += kLanes;
    }
  }
}

}  // namespace

template <class Product>
void multiply(const LeftMatrix& left, int64_t rows, const RightMatrix& right, int64_t width,
              float* c, int64_t c_stride, bool accumulate) {
  if (accumulate)
    multiply_panel<Product, true>(left, rows, right, width, c, c_stride);
  else
    multiply_panel<Product, false>(left, rows, right, width, c, c_stride);
}

template void multiply<Float32Product>(const LeftMatrix&, int64_t, const RightMatrix&, int64_t,
                                       float*, int64_t, bool);
template void multiply<BFloat16Product>(const LeftMatrix&, int64_t, const RightMatrix&, int64_t,
                                        float*, int64_t, bool);
template void multiply<Int16Product>(const LeftMatrix&, int64_t, const RightMatrix&, int64_t,
                                     float*, int64_t, bool);

}  // namespace ringgrad::conv
