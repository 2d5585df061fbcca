// Forward pass and data gradient of direct convolutions. A unit is some output rows of an image.
// Its window is copied into the second-level cache. Then each panel of 32 output channels takes one
// matrix product per output row, straight from the window: the matrix's rows are pixels, and the
// reduction runs over channels and taps.
#include <algorithm>
#include <type_traits>

#include "ringgrad/core/cpu/conv/direct_window.h"
#include "ringgrad/core/cpu/conv/gemm.h"

namespace ringgrad::conv {
namespace {

constexpr int64_t kUnitPixels = 128;

// The number of terms that a register adds before its sum is added to the output. The error of a
// sum of 1152 terms (128 channels, 3 x 3) is 2.4 times as large if one register adds them all.
constexpr int64_t kSumTerms = 192;

template <class X, class Y, class Product = ProductOf<Y>>
class DirectConvolution {
 public:
  DirectConvolution(const DirectProblem& problem, const X* x, const float* w, const float* bias,
                    const Y* addend, Y* y)
      : p_(problem),
        x_(x),
        addend_(addend),
        y_(y),
        out_(p_.out()),
        // A pixel of bfloat16 is half a cache line. With several phases each would write half
        // lines, and each half travels alone.
        streams_(should_stream(y, out_.numel()) &&
                 (sizeof(Y) == sizeof(float) || p_.phases() == 1)),
        neighbours_(Product::kTerms > 1 && p_.layout == InputLayout::Contiguous),
        window_(p_,
                Product::kTerms == 1 ? Pairs::None
                : neighbours_        ? Pairs::Neighbours
                                     : Pairs::Channels,
                kUnitPixels),
        segments_(p_.stream, p_.groups() * p_.filters.taps * segments_of_tap()),
        words_(filter_words<Product>(p_)),
        filters_(p_.stream, words_ * out_.channels()),
        bias_(p_.stream, bias, p_.filters.k) {
    prepare_direct_filters<Product>(p_, w, filters_.data());
  }

  void run() {
    fill_segments();
    const int64_t pixels = window_.rows() * p_.columns.phase(0).outputs + 3;  // see multiply()
    ThreadWorkspaces workspaces(p_.stream, window_.floats() + pixels * kPanel);
    parallel_for(p_.stream, p_.n * window_.units_per_image(), 1, [&](int64_t unit, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float* const window = slice.data();
      window_.load(x_, unit / window_.units_per_image(), unit % window_.units_per_image(), window);
      for (int64_t panel = 0; panel < panels(out_.blocks); ++panel)
        make_panel(unit, panel, window, window + window_.floats());
      stream_fence();
    });
  }

 private:
  int64_t segments_of_tap() const { return neighbours_ ? p_.group() : 1; }  // at most
  int64_t* segments(const Phase& phase) const {
    return segments_.data() + p_.groups() * phase.taps_before * segments_of_tap();
  }

  // The inputs of a row of taps are neighbours in the window, so there is one segment for each
  // group of channels and row of taps. Words of neighbours overlap, and each word is a segment. If
  // the number of inputs is odd, the last word begins at the last but one, whose other number is
  // multiplied by zero there. It cannot begin at the last, because the number beyond the row may be
  // infinite, and zero times infinity is NaN.
  void fill_segments() {
    for_each_phase(p_, [&](const Phase& phase) {
      int64_t* next = segments(phase);
      const int64_t numbers = phase.columns.taps * p_.group();
      for (int64_t group = 0; group < p_.groups(); ++group)
        for (int64_t i = 0; i < phase.rows.taps; ++i) {
          const int64_t begin = group * window_.plane() + i * window_.pitch() +
                                window_.offset(phase.rows, phase.columns);
          if (!neighbours_) *next++ = begin;
          for (int64_t k = 0; neighbours_ && k < numbers; k += 2)
            *next++ = begin + std::min(k, numbers - 2);
        }
    });
  }

  // Computes the products of some neighbouring outputs, whose inputs begin at `from`, in parts of
  // kSumTerms terms.
  void multiply_in_parts(const float* from, const Phase& phase, const RightMatrix& right,
                         int64_t outputs, int64_t width, float* products) const {
    const int64_t tap_rows = phase.columns.taps ? p_.groups() * phase.rows.taps : 0;
    const int64_t words = tap_row_words<Product>(p_, phase.columns.taps);
    const int64_t steps = neighbours_ ? 1 : words;
    const int64_t all = neighbours_ ? tap_rows * words : tap_rows;
    const int64_t most =
        std::max<int64_t>(1, kSumTerms / std::max<int64_t>(1, steps * Product::kTerms));
    int64_t done = 0;
    do {
      const int64_t count = std::min(most, all - done);
      const LeftMatrix left{
          from, window_.in_step() * window_.pixel(), 1, steps, segments(phase) + done, count};
      const RightMatrix part{right.data + done * steps * right.stride, right.stride,
                             right.block_stride};
      multiply<Product>(left, outputs, part, width, products, width, done > 0);
      done += most;
    } while (done < all);
  }

  // Computes 32 (or 16) output channels of a unit, in all phases.
  void make_panel(int64_t unit, int64_t panel, const float* window, float* products) const {
    const int64_t width = panel_width(panel, out_.blocks);
    const RightMatrix packed =
        packed_panel(filters_.data() + panel * words_ * kPanel, words_, width);
    int64_t before = 0;  // words of the phases before this one
    const int64_t first = unit % window_.units_per_image() * window_.rows();
    for_each_phase(p_, [&](const Phase& phase) {
      const int64_t count = std::min(window_.rows(), phase.rows.outputs - first);
      const int64_t columns = phase.columns.outputs;
      const int64_t steps = tap_row_words<Product>(p_, phase.columns.taps);
      const int64_t tap_rows = p_.groups() * phase.rows.taps;
      const RightMatrix right{packed.data + before * packed.stride, packed.stride,
                              packed.block_stride};
      before += tap_rows * steps;
      if (count <= 0) return;
      if (window_.joins_rows(phase.columns)) {
        multiply_in_parts(window, phase, right, count * columns, width, products);
      } else {
        for (int64_t i = 0; i < count; ++i)
          multiply_in_parts(window + i * window_.in_step() * window_.pitch(), phase, right, columns,
                            width, products + i * columns * width);
      }
      for (int64_t block = 2 * panel; block < 2 * panel + width / kChannelBlock; ++block)
        for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
          write(unit, phase, first, count, block, lane, products + block % 2 * kChannelBlock + lane,
                width);
    });
  }

  // Writes some lanes of a block of output channels from the products into the image.
  void write(int64_t unit, const Phase& phase, int64_t first, int64_t count, int64_t block,
             int64_t lane, const float* products, int64_t width) const {
    const Vector bias = bias_.load(block * kChannelBlock + lane);
    const int64_t image = unit / window_.units_per_image();
    const int64_t step = p_.rows.out_step();
    Y* const plane =
        y_ + (image * out_.blocks + block) * out_.plane() + phase.column * kChannelBlock + lane;
    for (int64_t i = 0; i < count; ++i) {
      Y* to = plane + (phase.row + (first + i) * step) * out_.w * kChannelBlock;
      for (int64_t j = 0; j < phase.columns.outputs;
           ++j, to += step * kChannelBlock, products += width) {
        Vector v = load(products) + bias;
        if (addend_) v += load(addend_ + (to - y_));
        store_or_stream(to, v, streams_);
      }
    }
  }

  const DirectProblem& p_;
  const X* x_;
  const Y* addend_;
  Y* y_;
  BlockedShape out_;
  bool streams_;
  // True for few channels: words then hold two successive numbers of a row, and overlap.
  bool neighbours_;
  DirectWindow window_;
  Workspace<int64_t> segments_;
  int64_t words_;  // per column of filters
  Workspace<float> filters_;
  Bias bias_;
};

}  // namespace

template <class X, class Y>
void direct_convolution(const DirectProblem& p, const X* x, const float* w, const float* bias,
                        const Y* addend, Y* y) {
  // In a row of one number, the number has no neighbour to share a word with.
  if constexpr (!std::is_same_v<X, Y>) {
    bool single = false;
    for_each_phase(p, [&](const Phase& phase) { single |= phase.columns.taps * p.group() == 1; });
    if (single) return DirectConvolution<X, Y, Float32Product>(p, x, w, bias, addend, y).run();
  }
  DirectConvolution<X, Y>(p, x, w, bias, addend, y).run();
}

#define INSTANTIATE(X, Y)                                                                      \
  template void direct_convolution(const DirectProblem&, const X*, const float*, const float*, \
                                   const Y*, Y*)
INSTANTIATE(float, float);
INSTANTIATE(float, bfloat16);
INSTANTIATE(bfloat16, bfloat16);

}  // namespace ringgrad::conv
