// The right factor is copied into strips in which the numbers that a register tile reads are side
// by side, [strip of a tile's columns] [step][column]. A block of panels, for one segment of steps,
// stays in the second-level cache while the rows of the left factor pass. A tile reads one word of
// each left row after the other, so the left factor is read in place, 48 rows of a segment in the
// first-level cache. Only a transposed left factor is copied, as [step][row]. A step is a term of
// the sums; for bfloat16 numbers, which are multiplied in pairs, it is two terms.
#include "ringgrad/core/cpu/packed_product.h"

#include "ringgrad/core/cpu/blocking.h"

namespace ringgrad::cpu {
namespace {

// the size of a panel
constexpr int64_t kRows = 48;
constexpr int64_t kColumns = conv::kPanel;
// the columns of a strip; see conv::packed_panel
constexpr int64_t kStrip = conv::kLanes == kChannelBlock ? kColumns : kChannelBlock;
// steps of a segment; panels of a block
constexpr int64_t kSegment = 128;
constexpr int64_t kWide = 8;
// Rows of `a` that are whole pages apart would share one set of the first-level cache. It holds 8
// of the 12 rows that a tile reads.
constexpr int64_t kPage = 1024;  // words
// Rows of a factor that is copied, which may be pages apart: the processor does not fetch those on
// its own. Measured on Zen 3: a transposed left factor of 768 x 4096, +9 % for the whole product.
constexpr int64_t kFetchAhead = 16;
constexpr int64_t kLeft = kSegment * kRows, kRight = kSegment * kColumns * kWide,
                  kTile = (kRows + 3) * kColumns;

template <class T>
constexpr int64_t kTerms = sizeof(float) / sizeof(T);  // per word

// Returns true if the rows of x already consist of words in memory.
template <class T>
bool consists_of_words(const Matrix<T>& x) {
  return !x.is_transposed && x.cols % kTerms<T> == 0 && x.stride % kTerms<T> == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % sizeof(float) == 0;
}
template <class T>
Matrix<float> words_of(const Matrix<T>& x) {
  return {reinterpret_cast<float*>(x.data), x.rows, x.cols / kTerms<T>, x.stride / kTerms<T>};
}

// c (+)= left right. If c ends within a tile, the product goes through `scratch`, because tiles
// write whole vectors and rows in groups of four.
template <class Product>
void multiply_panels(const Matrix<float>& c, const conv::LeftMatrix& left, const float* right,
                     bool accumulate, float* scratch) {
  const int64_t width = c.cols > kChannelBlock ? kColumns : kChannelBlock;
  const conv::RightMatrix b = conv::packed_panel(right, left.steps, kColumns);
  if (c.rows % 4 == 0 && c.cols == width)
    return conv::multiply<Product>(left, c.rows, b, width, c.data, c.stride, accumulate);
  conv::multiply<Product>(left, c.rows, b, width, scratch, kColumns, false);
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.cols; ++j) {
      float& sum = *c.at(i, j);
      sum = accumulate ? sum + scratch[i * kColumns + j] : scratch[i * kColumns + j];
    }
}

// Copies a block of numbers, which is too short for a call of memcpy.
void copy_block(const float* from, float* to) {
  for (int64_t i = 0; i < kChannelBlock; i += conv::kLanes)
    conv::store(to + i, conv::load(from + i));
}

// to = first[0], second[0], first[1], …
void interleave(const bfloat16* first, const bfloat16* second, int64_t n, bfloat16* to) {
  int64_t i = 0;
  for (; i + conv::kLanes <= n; i += conv::kLanes) {
    const auto halves = [i](const bfloat16* x) {
      return *reinterpret_cast<const conv::Halves*>(x + i);
    };
    conv::store(reinterpret_cast<float*>(to + 2 * i), conv::pair_of(halves(first), halves(second)));
  }
  for (; i < n; ++i) {
    to[2 * i] = first[i];
    to[2 * i + 1] = second[i];
  }
}

}  // namespace

void pack(const Matrix<float>& x, int64_t side, float* to) {
  constexpr int64_t kBlock = kChannelBlock;
  if (x.rows < side)
    for (int64_t t = 0; t < x.cols; ++t)
      std::fill(to + t * side + x.rows, to + (t + 1) * side, 0.0f);
  if (x.is_transposed) {
    for (int64_t t = 0; t < x.cols; ++t) {
      const float* const from = x.at(0, t);
      int64_t i = 0;
      for (; i + kBlock <= x.rows; i += kBlock) {
        conv::prefetch(from + i + kFetchAhead * x.stride);
        copy_block(from + i, to + t * side + i);
      }
      std::copy_n(from + i, x.rows - i, to + t * side + i);
    }
    return;
  }
  const int64_t whole_rows = x.rows / kBlock * kBlock;
  const int64_t whole_terms = x.cols / kBlock * kBlock;
  for (int64_t i = 0; i < whole_rows; i += kBlock)
    for (int64_t t = 0; t < whole_terms; t += kBlock)
      conv::transpose_block(x.at(i, t), x.stride, to + t * side + i, side);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t t = i < whole_rows ? whole_terms : 0; t < x.cols; ++t)
      to[t * side + i] = *x.at(i, t);
}

void pack(const Matrix<bfloat16>& x, int64_t side, float* to) {
  if (consists_of_words(x)) return pack(words_of(x), side, to);
  for (int64_t t = 0; t < x.cols; t += 2, to += side) {
    bfloat16* const pairs = reinterpret_cast<bfloat16*>(to);
    std::fill_n(to + x.rows, side - x.rows, 0.0f);
    const bfloat16* const first = x.at(0, t);
    const bfloat16* const second = x.at(0, std::min(t + 1, x.cols - 1));
    const int64_t step = x.is_transposed ? 1 : x.stride;
    if (t + 1 == x.cols)
      for (int64_t i = 0; i < x.rows; ++i) {
        pairs[2 * i] = first[i * step];
        pairs[2 * i + 1] = bfloat16{};
      }
    else if (step == 1)
      interleave(first, second, x.rows, pairs);
    else
      for (int64_t i = 0; i < x.rows; ++i) {
        pairs[2 * i] = first[i * step];
        pairs[2 * i + 1] = second[i * step];
      }
  }
}

template <class T>
void pack_right(const Matrix<T>& b, float* to) {
  const int64_t steps = ceil_div(b.rows, kTerms<T>);
  for (int64_t j = 0; j < b.cols; j += kStrip)
    pack(b.block(0, j, b.rows, std::min(kStrip, b.cols - j)).transposed(), kStrip, to + j * steps);
}
template void pack_right(const Matrix<float>&, float*);
template void pack_right(const Matrix<bfloat16>&, float*);

template <class T>
conv::LeftMatrix left_of(const Matrix<T>& a, float* memory) {
  static constexpr int64_t kBegin = 0;
  const int64_t steps = ceil_div(a.cols, kTerms<T>);
  if (a.rows % 4 == 0 && consists_of_words(a)) {
    const Matrix<float> words = words_of(a);
    if (words.stride % kPage != 0) return {words.data, words.stride, 1, steps, &kBegin, 1};
    for (int64_t i = 0; i < a.rows; ++i) std::copy_n(words.at(i, 0), steps, memory + i * steps);
    return {memory, steps, 1, steps, &kBegin, 1};
  }
  const int64_t side = ceil_div(a.rows, 4) * 4;
  pack(a, side, memory);
  return {memory, 1, side, steps, &kBegin, 1};
}
template conv::LeftMatrix left_of(const Matrix<float>&, float*);
template conv::LeftMatrix left_of(const Matrix<bfloat16>&, float*);

bool suits_packed_product(int64_t rows, int64_t columns, int64_t terms) {
  return rows >= 8 && columns >= kChannelBlock && terms >= 8;
}

int64_t packed_product_memory() { return kLeft + kRight + kTile; }

template <class T>
void packed_product(const Matrix<float>& c, const Matrix<T>& a, const Matrix<T>& b, bool accumulate,
                    float* memory) {
  using Product =
      std::conditional_t<std::is_same_v<T, float>, conv::Float32Product, conv::BFloat16Product>;
  constexpr int64_t kSegmentTerms = kSegment * kTerms<T>;
  float* const left_memory = memory;
  float* const right = left_memory + kLeft;
  float* const scratch = right + kRight;
  for (int64_t column = 0; column < c.cols; column += kColumns * kWide) {
    const int64_t columns = std::min(kColumns * kWide, c.cols - column);
    for (int64_t term = 0; term < a.cols; term += kSegmentTerms) {
      const int64_t terms = std::min(kSegmentTerms, a.cols - term);
      const int64_t steps = ceil_div(terms, kTerms<T>);
      pack_right(b.block(term, column, terms, columns), right);
      for (int64_t row = 0; row < c.rows; row += kRows) {
        const int64_t rows = std::min(kRows, c.rows - row);
        const conv::LeftMatrix left = left_of(a.block(row, term, rows, terms), left_memory);
        for (int64_t j = 0; j < columns; j += kColumns)
          multiply_panels<Product>(c.block(row, column + j, rows, std::min(kColumns, columns - j)),
                                   left, right + j * steps, accumulate || term > 0, scratch);
      }
    }
  }
}

template void packed_product(const Matrix<float>&, const Matrix<float>&, const Matrix<float>&, bool,
                             float*);
template void packed_product(const Matrix<float>&, const Matrix<bfloat16>&, const Matrix<bfloat16>&,
                             bool, float*);

}  // namespace ringgrad::cpu
