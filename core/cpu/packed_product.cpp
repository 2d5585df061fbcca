// Both factors are first copied into panels in which what a register tile reads lies side by side:
//
//   left    [batch][panel of 48 rows][term][row]
//   right   [batch][panel of 32 columns][term][column]
//
// a slice of the terms at a time, so that copies of large factors stay small beside them. A unit of work is a block of
// c that stays in the second-level cache with its panels; a right panel of one segment of terms (16 KiB) stays in the
// first while all left panels of the block pass.
#include "ringgrad/core/cpu/packed_product.h"

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/gemm.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

constexpr int64_t kRows = 48, kColumns = conv::kPanel;    // of a panel
constexpr int64_t kSegment = 128, kSlice = 8 * kSegment;  // terms

// A factor's elements by their place along M (or N) and by term.
struct Factor {
  const float* data;
  int64_t batch, side, term;  // strides
};

// to[term][place], kSide places wide, zeros beyond `places`.
template <int64_t kSide>
void pack(const Factor& x, int64_t places, int64_t terms, float* to) {
  constexpr int64_t kBlock = kChannelBlock;
  if (places < kSide) std::fill_n(to, terms * kSide, 0.0f);
  if (x.side == 1) {
    for (int64_t t = 0; t < terms; ++t) std::copy_n(x.data + t * x.term, places, to + t * kSide);
    return;
  }
  const int64_t whole_places = x.term == 1 ? places / kBlock * kBlock : 0, whole_terms = terms / kBlock * kBlock;
  for (int64_t i = 0; i < whole_places; i += kBlock)
    for (int64_t t = 0; t < whole_terms; t += kBlock)
      conv::transpose_block(x.data + i * x.side + t, x.side, to + t * kSide + i, kSide);
  for (int64_t i = 0; i < places; ++i)
    for (int64_t t = i < whole_places ? whole_terms : 0; t < terms; ++t)
      to[t * kSide + i] = x.data[i * x.side + t * x.term];
}

// One slice of a factor in panels.
template <int64_t kSide>
class Packed {
 public:
  Packed(Stream stream, const Factor& factor, int64_t batches, int64_t places, int64_t terms)
      : stream_(stream),
        factor_(factor),
        batches_(factor.batch == 0 ? 1 : batches),
        places_(places),
        panels_(ceil_div(places, kSide)),
        capacity_(std::min(terms, kSlice)),
        memory_(stream, batches_ * panels_ * capacity_ * kSide) {}

  void take(int64_t first, int64_t terms) {
    parallel_for(stream_, batches_ * panels_, grain(kSide * terms), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t place = unit % panels_ * kSide;
        const float* const from =
            factor_.data + unit / panels_ * factor_.batch + place * factor_.side + first * factor_.term;
        pack<kSide>({from, 0, factor_.side, factor_.term}, std::min(kSide, places_ - place), terms, at(unit));
      }
    });
  }
  int64_t panels() const { return panels_; }
  const float* panel(int64_t batch, int64_t i) const { return at((batches_ == 1 ? 0 : batch * panels_) + i); }

 private:
  float* at(int64_t unit) const { return memory_.data() + unit * capacity_ * kSide; }

  Stream stream_;
  Factor factor_;
  int64_t batches_, places_, panels_, capacity_;
  Workspace<float> memory_;
};

struct Result {
  float* data;
  int64_t rows, columns;  // of the whole
};

// Adds the product of two panels to c, or puts it there. Through `scratch` where c ends amid a tile: those write whole
// vectors, and rows by fours.
void multiply_panels(const float* left, const float* right, int64_t terms, const Result& c, int64_t row, int64_t column,
                     bool accumulate, float* scratch) {
  constexpr int64_t kBegin = 0;
  const int64_t rows = std::min(kRows, c.rows - row), columns = std::min(kColumns, c.columns - column);
  const int64_t width = columns > kChannelBlock ? kColumns : kChannelBlock;
  const conv::LeftMatrix a{left, 1, kRows, terms, &kBegin, 1};
  const conv::RightMatrix b{right, kColumns, kChannelBlock};
  float* const to = c.data + row * c.columns + column;
  if (rows % 4 == 0 && columns == width)
    return conv::multiply<conv::Float32Product>(a, rows, b, width, to, c.columns, accumulate);
  conv::multiply<conv::Float32Product>(a, rows, b, width, scratch, kColumns, false);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float& sum = to[i * c.columns + j];
      sum = accumulate ? sum + scratch[i * kColumns + j] : scratch[i * kColumns + j];
    }
}

Factor factor_of(const Tensor& x, int side) {
  return {x.data<float>(), x.strides()[0], x.strides()[side], x.strides()[3 - side]};
}

}  // namespace

bool suits_packed_product(const Tensor& c, int64_t terms) {
  return c.shape()[1] >= 8 && c.shape()[2] >= kChannelBlock && terms >= 8;
}

void packed_product(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t batches = c.shape()[0], m = c.shape()[1], n = c.shape()[2], k = a.shape()[2];
  Packed<kRows> left(stream, factor_of(a, 1), batches, m, k);
  Packed<kColumns> right(stream, factor_of(b, 2), batches, n, k);
  int64_t high = 4, wide = 8;  // panels of a block
  const auto units = [&] { return batches * ceil_div(left.panels(), high) * ceil_div(right.panels(), wide); };
  while (units() < 16 && high * wide > 1) (kRows * high >= kColumns * wide && high > 1 ? high : wide) /= 2;
  const int64_t row_blocks = ceil_div(left.panels(), high), column_blocks = ceil_div(right.panels(), wide);
  const float* const shift = bias.defined() ? bias.data<float>() : nullptr;
  ThreadWorkspaces workspaces(stream, (kRows + 3) * kColumns);

  for (int64_t first = 0; first < k; first += kSlice) {
    const int64_t slice = std::min(kSlice, k - first);
    left.take(first, slice);
    right.take(first, slice);
    parallel_for(
        stream, units(), ceil_div(1 << 19, kRows * high * kColumns * wide * slice), [&](int64_t begin, int64_t end) {
          const ThreadWorkspaces::Slice scratch(workspaces);
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t batch = unit / (row_blocks * column_blocks);
            const int64_t i_begin = unit / column_blocks % row_blocks * high,
                          i_end = std::min(i_begin + high, left.panels());
            const int64_t j_begin = unit % column_blocks * wide, j_end = std::min(j_begin + wide, right.panels());
            const Result out{c.data<float>() + batch * m * n, m, n};
            if (shift && first == 0)
              for (int64_t row = i_begin * kRows; row < std::min(m, i_end * kRows); ++row)
                std::copy(shift + j_begin * kColumns, shift + std::min(n, j_end * kColumns),
                          out.data + row * n + j_begin * kColumns);
            for (int64_t t = 0; t < slice; t += kSegment)
              for (int64_t j = j_begin; j < j_end; ++j)
                for (int64_t i = i_begin; i < i_end; ++i)
                  multiply_panels(left.panel(batch, i) + t * kRows, right.panel(batch, j) + t * kColumns,
                                  std::min(kSegment, slice - t), out, i * kRows, j * kColumns,
                                  shift || first > 0 || t > 0, scratch.data());
          }
        });
  }
}

}  // namespace ringgrad::cpu
