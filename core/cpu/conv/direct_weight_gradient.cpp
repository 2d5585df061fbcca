// Weight gradient of direct convolutions. A unit is some output rows of an image, whose window of x
// is copied. Each group of channels and row of taps then takes one matrix product per panel of 32
// output channels. The matrix's rows are the channels of all taps of the row, which are neighbours
// in the window. The reduction runs over pixels, or over pairs of neighbours in a row. dy is the
// right matrix; in float32 it is read in place.
#include <algorithm>
#include <type_traits>

#include "ringgrad/core/cpu/conv/direct_window.h"
#include "ringgrad/core/cpu/conv/gemm.h"

namespace ringgrad::conv {
namespace {

constexpr int64_t kUnitPixels = 256;
// The sums are private, see Note [Who sums a weight gradient]. But a part keeps its accumulators,
// which are its gradient.
constexpr int64_t kPartsBytes = 10 << 20;  // for all parts together
constexpr int64_t kMaxParts = 16;

template <class X, class Y>
class DirectWeightGradient {
  using Product = ProductOf<Y>;

 public:
  DirectWeightGradient(const DirectProblem& problem, const X* x, const Y* dy, float* dw)
      : p_(problem),
        x_(x),
        dy_(dy),
        dw_(dw),
        out_(p_.out()),
        window_(p_, Product::kTerms == 1 ? Pairs::None : Pairs::Outputs, kUnitPixels),
        steps_((out_.w + Product::kTerms - 1) / Product::kTerms),
        units_(p_.n * window_.units_per_image()),
        rows_((p_.columns.filter * p_.group() + 3) / 4 * 4),
        part_floats_(p_.groups() * p_.rows.filter * rows_ * out_.channels()),
        parts_(std::clamp<int64_t>(kPartsBytes / 4 / part_floats_, 1, std::min(kMaxParts, units_))),
        segments_(p_.stream, window_.rows()),
        accumulators_(p_.stream, parts_ * part_floats_) {}

  void run() {
    for (int64_t i = 0; i < window_.rows(); ++i)
      segments_[i] = i * window_.in_step() * window_.pitch();
    ThreadWorkspaces workspaces(p_.stream,
                                std::max(window_.floats() + window_.rows() * steps_ * kPanel,
                                         kChannelBlock * p_.filters.taps * kChannelBlock));
    parallel_for(p_.stream, parts_, 1, [&](int64_t part, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      const int64_t first = units_ * part / parts_;
      const int64_t last = units_ * (part + 1) / parts_;
      for (int64_t unit = first; unit < last; ++unit) {
        const int64_t image = unit / window_.units_per_image();
        const int64_t index = unit % window_.units_per_image();
        window_.load(x_, image, index, slice.data());
        accumulate(image, index, slice.data(), slice.data() + window_.floats(), part,
                   unit == first);
      }
    });
    parallel_for(p_.stream, out_.blocks, 1, [&](int64_t k_block, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      finish(k_block, slice.data());
    });
  }

 private:
  // Returns the position in the accumulators: [panel of k][group][tap row][tap column, channel][k].
  int64_t offset(int64_t panel, int64_t group, int64_t tap_row) const {
    return panel * p_.groups() * p_.rows.filter * rows_ * kPanel +
           (group * p_.rows.filter + tap_row) * rows_ * panel_width(panel, out_.blocks);
  }

  void accumulate(int64_t image, int64_t index, const float* window, float* scratch, int64_t part,
                  bool first) const {
    const int64_t row = index * window_.rows();
    const int64_t count = std::min(window_.rows(), out_.h - row);
    for (int64_t panel = 0; panel < panels(out_.blocks); ++panel) {
      const int64_t width = panel_width(panel, out_.blocks);
      const Y* const dy =
          dy_ + (image * out_.blocks + 2 * panel) * out_.plane() + row * out_.w * kChannelBlock;
      const RightMatrix right = right_matrix(dy, count, width, scratch);
      for (int64_t group = 0; group < p_.groups(); ++group)
        for (int64_t tap_row = 0; tap_row < p_.rows.filter; ++tap_row) {
          const LeftMatrix left{window + group * window_.plane() + tap_row * window_.pitch(),
                                1,
                                Product::kTerms * window_.in_step() * p_.group(),
                                steps_,
                                segments_.data(),
                                count};
          multiply<Product>(
              left, p_.columns.filter * p_.group(), right, width,
              accumulators_.data() + part * part_floats_ + offset(panel, group, tap_row), width,
              !first);
        }
    }
  }

  // Returns `rows` rows of dy: in place in the image, or as words in scratch.
  RightMatrix right_matrix(const Y* dy, int64_t rows, int64_t width, float* scratch) const {
    if constexpr (std::is_same_v<Y, float>) {
      return {dy, kChannelBlock, out_.plane()};
    } else {
      for (int64_t column = 0; column < width; column += kLanes) {
        const Y* from = dy + column / kChannelBlock * out_.plane() + column % kChannelBlock;
        float* to = scratch + column;
        for (int64_t i = 0; i < rows; ++i, from += out_.w * kChannelBlock)
          for (int64_t j = 0; j < out_.w; j += Product::kTerms, to += width) {
            const Vector first = load(from + j * kChannelBlock);
            if constexpr (Product::kTerms == 1)
              store(to, first);
            else
              store(to, pair_of(first,
                                j + 1 < out_.w ? load(from + (j + 1) * kChannelBlock) : Vector{}));
          }
      }
      return {scratch, width, kChannelBlock};
    }
  }

  // Adds the parts and writes a block of output channels into dw through `block`, [c][tap][k].
  void finish(int64_t k_block, float* block) const {
    const int64_t panel = k_block / 2;
    const int64_t width = panel_width(panel, out_.blocks);
    for (int64_t c_block = 0; c_block < channel_blocks(p_.filters.c); ++c_block) {
      const int64_t group = c_block * kChannelBlock / p_.group();
      const int64_t first = c_block * kChannelBlock % p_.group();
      for (int64_t c = 0; c < std::min(kChannelBlock, p_.group() - first); ++c)
        for (int64_t tap = 0; tap < p_.filters.taps; ++tap) {
          const float* const from = accumulators_.data() +
                                    offset(panel, group, tap / p_.columns.filter) +
                                    (tap % p_.columns.filter * p_.group() + first + c) * width +
                                    k_block % 2 * kChannelBlock;
          for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes) {
            Vector sum = load(from + lane);
            for (int64_t part = 1; part < parts_; ++part)
              sum += load(from + part * part_floats_ + lane);
            store(block + (c * p_.filters.taps + tap) * kChannelBlock + lane, sum);
          }
        }
      store_filter_block(dw_, p_.filters, c_block, k_block, block);
    }
  }

  const DirectProblem& p_;
  const X* x_;
  const Y* dy_;
  float* dw_;
  BlockedShape out_;
  DirectWindow window_;
  int64_t steps_;  // per row of outputs
  int64_t units_;
  int64_t rows_;  // accumulator rows of a row of taps, a multiple of 4, see multiply()
  int64_t part_floats_;
  int64_t parts_;
  Workspace<int64_t> segments_;  // the output rows of a unit
  Workspace<float> accumulators_;
};

}  // namespace

template <class X, class Y>
void direct_weight_gradient(const DirectProblem& p, const X* x, const Y* dy, float* dw) {
  if (p.n == 0)
    return static_cast<void>(std::fill_n(dw, p.filters.k * p.filters.c * p.filters.taps, 0.0f));
  DirectWeightGradient<X, Y>(p, x, dy, dw).run();
}

#define INSTANTIATE(X, Y) \
  template void direct_weight_gradient(const DirectProblem&, const X*, const Y*, float*)
INSTANTIATE(float, float);
INSTANTIATE(float, bfloat16);
INSTANTIATE(bfloat16, bfloat16);

}  // namespace ringgrad::conv
