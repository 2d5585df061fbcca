// Weight gradient on tiles: dw[tap] = Σ over pixels and images of x(the tap's pixel)ᵀ dy, reduced
// over the same pixel of 32 images. A left tile is 16 channels of x by 32 images, and a right one
// 16 pairs of images by 16 channels of dy. So a tap is an address: no shift breaks a pair, strides
// cost nothing, and rows outside of the image are left out. Copying images into tiles takes 15 to
// 35 % of the time. Therefore three taps and 32 channels of dy share what they load, in six tiles
// of sums.
//
//   x    [block of channels][row of a ring][column with borders of zeros][channel][image]
//   dy   [block of channels][row of a band][column][pair of images][channel][2]
//   sums [block of x][panel of 32 channels of dy][tap][block of the panel]
//        [channel of x][channel of dy]
//
// Each part of the images has its own sums, which are added in the order of the parts. So the
// result does not depend on the number of threads. A part is 32 images, processed in bands of rows.
// It is all images at once if the sums are so much larger than the images that reading and writing
// them would cost more.
#include "ringgrad/core/cpu/amx/convolution.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"

namespace ringgrad::amx {
namespace {

using namespace conv;

constexpr int64_t kImages = 32;
constexpr int64_t kTileFloats = kTileBytes / 4;
constexpr int64_t kBandBytes = 1280 << 10;  // for a second-level cache of two megabytes

template <class Unit>
class WeightGradient {
 public:
  WeightGradient(const DirectProblem& problem, const bfloat16* x, const bfloat16* dy, float* dw)
      : p_(problem),
        x_(x),
        dy_(dy),
        dw_(dw),
        in_{p_.n, p_.groups(), p_.rows.input, p_.columns.input},
        out_(p_.out()),
        panels_((out_.blocks + 1) / 2),
        groups_((p_.n + kImages - 1) / kImages),
        sums_floats_(in_.blocks * panels_ * p_.filters.taps * 2 * kTileFloats),
        columns_(in_.w + 2 * p_.columns.padding) {
    set_band(out_.h);
    whole_ = sums_floats_ * 4 > 3 * window_bytes();
    while (!whole_ && band_ > 1 && window_bytes() > kBandBytes) set_band(band_ - 1);
    parts_ = whole_ ? 1 : groups_;
  }

  void run() {
    // With more threads than parts several threads share a part's panels, and each copies x again.
    const int64_t splits = std::clamp<int64_t>(thread_count(p_.stream) / parts_, 1, panels_);
    const int64_t finish_floats = p_.filters.taps * kChannelBlock * kChannelBlock;
    const Workspace<float> sums(p_.stream, parts_ * sums_floats_);
    ThreadWorkspaces workspaces(
        p_.stream, std::max(kTileFloats + groups_ / parts_ * window_bytes() / 4, finish_floats));
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileRows, kTileRowBytes);
    parallel_for(p_.stream, parts_ * splits, 1, [&](int64_t unit, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      const int64_t part = unit / splits;
      const int64_t split = unit % splits;
      Unit::configure(shapes);
      run_part(part, panels_ * split / splits, panels_ * (split + 1) / splits, slice.data(),
               sums.data() + part * sums_floats_);
      Unit::release();
    });
    parallel_for(p_.stream, in_.blocks * out_.blocks, 1, [&](int64_t unit, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      finish(unit / out_.blocks, unit % out_.blocks, sums.data(), slice.data());
    });
  }

 private:
  void set_band(int64_t rows) {
    band_ = rows;
    ring_ = (rows - 1) * p_.rows.stride + p_.rows.filter;
    // The extra row keeps the planes from sharing the same sets of a cache.
    x_plane_ = ring_ * columns_ * kTileBytes + kTileRowBytes;
    dy_plane_ = band_ * out_.w * kTileBytes + kTileRowBytes;
  }
  int64_t window_bytes() const { return in_.blocks * x_plane_ + out_.blocks * dy_plane_; }

  // Runs a part, whose groups of images follow each other.
  void run_part(int64_t part, int64_t first_panel, int64_t end_panel, float* scratch,
                float* sums) const {
    const int64_t groups = groups_ / parts_;
    char* const windows = reinterpret_cast<char*>(scratch + kTileFloats);
    for (int64_t g = 0; g < groups; ++g) clear_borders(windows + g * window_bytes());
    int64_t next = 0;  // the next row of x to copy
    for (int64_t first = 0; first < out_.h; first += band_) {
      const int64_t last = std::min(out_.h, first + band_);
      const int64_t end =
          std::min(in_.h, (last - 1) * p_.rows.stride - p_.rows.padding + p_.rows.filter);
      for (int64_t g = 0; g < groups; ++g) {
        char* const window = windows + g * window_bytes();
        for (int64_t row = next; row < end; ++row)
          for (int64_t block = 0; block < in_.blocks; ++block)
            copy_row<true>(x_, in_, part + g, block, row,
                           window + block * x_plane_ +
                               (row % ring_ * columns_ + p_.columns.padding) * kTileBytes,
                           scratch);
        for (int64_t row = first; row < last; ++row)
          for (int64_t block = 2 * first_panel; block < std::min(out_.blocks, 2 * end_panel);
               ++block)
            copy_row<false>(dy_, out_, part + g, block, row,
                            window + in_.blocks * x_plane_ + block * dy_plane_ +
                                (row - first) * out_.w * kTileBytes,
                            scratch);
      }
      next = std::max(next, end);
      for (int64_t panel = first_panel; panel < end_panel; ++panel)
        multiply_panel({windows, groups, first, last}, panel, sums);
    }
  }

  void clear_borders(char* window) const {
    const int64_t border = p_.columns.padding * kTileBytes;
    const int64_t pitch = columns_ * kTileBytes;
    for (int64_t block = 0; block < in_.blocks; ++block)
      for (int64_t row = 0; row < ring_; ++row) {
        char* const at = window + block * x_plane_ + row * pitch;
        std::fill_n(at, border, 0);
        std::fill_n(at + pitch - border, border, 0);
      }
  }

  // Copies a row of a block of channels of 32 images. Images beyond the last are zeros.
  template <bool kTransposed>
  void copy_row(const bfloat16* images, const BlockedShape& shape, int64_t group, int64_t block,
                int64_t row, char* to, float* scratch) const {
    static constexpr bfloat16 kNone[kChannelBlock] = {};
    const int64_t stride = shape.blocks * shape.plane();
    const bfloat16* const from =
        images + group * kImages * stride + (block * shape.h + row) * shape.w * kChannelBlock;
    const int64_t count = std::min(kImages, shape.n - group * kImages);
    for (int64_t j = 0; j < shape.w; ++j, to += kTileBytes) {
      // [pair of images][channel].
      float* const pairs = kTransposed ? scratch : reinterpret_cast<float*>(to);
      for (int64_t i = 0; i < kImages; i += 2) {
        const bfloat16* const first = i < count ? from + i * stride + j * kChannelBlock : kNone;
        const bfloat16* const second =
            i + 1 < count ? from + (i + 1) * stride + j * kChannelBlock : kNone;
        for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
          store(pairs + i / 2 * kChannelBlock + lane,
                pair_of(*reinterpret_cast<const Halves*>(first + lane),
                        *reinterpret_cast<const Halves*>(second + lane)));
      }
      if (kTransposed)
        transpose_block(scratch, kChannelBlock, reinterpret_cast<float*>(to), kChannelBlock);
    }
  }

  struct Band {
    const char* windows;
    int64_t groups;
    // rows of dy
    int64_t first;
    int64_t last;
  };

  void multiply_panel(const Band& band, int64_t panel, float* sums) const {
    const bool wide = 2 * panel + 1 < out_.blocks;
    const int64_t columns = p_.columns.filter;
    for (int64_t block = 0; block < in_.blocks; ++block)
      for (int64_t r = 0; r < p_.rows.filter; ++r)
        for (int64_t s = 0; s < columns;) {
          float* const at = sums + ((block * panels_ + panel) * p_.filters.taps + r * columns + s) *
                                       2 * kTileFloats;
          const int64_t x = block * x_plane_ + s * kTileBytes;
          const int64_t dy = in_.blocks * x_plane_ + 2 * panel * dy_plane_;
          const auto run = [&]<int kTaps>() {
            wide ? multiply<kTaps, 2>(band, x, dy, r, at) : multiply<kTaps, 1>(band, x, dy, r, at);
            s += kTaps;
          };
          if (columns - s >= 3)
            run.template operator()<3>();
          else if (columns - s == 2)
            run.template operator()<2>();
          else
            run.template operator()<1>();
        }
  }

  template <int... I, class Body>
  static void each(std::integer_sequence<int, I...>, Body&& body) {
    (body.template operator()<I>(), ...);
  }

  // Multiplies kTaps neighbouring taps with kBlocks blocks of channels of dy. The first tiles hold
  // the sums [tap][block].
  template <int kTaps, int kBlocks>
  void multiply(const Band& band, int64_t x, int64_t dy, int64_t r, float* sums) const {
    constexpr auto taps = std::make_integer_sequence<int, kTaps>{};
    constexpr auto all = std::make_integer_sequence<int, kTaps * kBlocks>{};
    const auto place = [&](int i) { return sums + (i / kBlocks * 2 + i % kBlocks) * kTileFloats; };
    if (band.first == 0)
      each(all, [&]<int I>() { Unit::template zero<I>(); });
    else
      each(all, [&]<int I>() { Unit::template load<I>(place(I), kTileRowBytes); });
    for (int64_t group = 0; group < band.groups; ++group)
      for (int64_t i = band.first; i < band.last; ++i) {
        const int64_t row = i * p_.rows.stride + r - p_.rows.padding;
        if (row < 0 || row >= in_.h) continue;
        const char* const window = band.windows + group * window_bytes();
        const char* left = window + x + row % ring_ * columns_ * kTileBytes;
        const char* right = window + dy + (i - band.first) * out_.w * kTileBytes;
        for (int64_t j = 0; j < out_.w;
             ++j, left += p_.columns.stride * kTileBytes, right += kTileBytes) {
          Unit::template load<6>(right, kTileRowBytes);
          each(taps, [&]<int Tap>() {
            if constexpr (kBlocks == 1) {
              Unit::template load<kTaps + Tap>(left + Tap * kTileBytes, kTileRowBytes);
              Unit::template dot<Tap, kTaps + Tap, 6>();
            } else {  // the first product of each tap takes the right tile that is loaded
              constexpr int kThere = Tap % 2;
              Unit::template load<7>(left + Tap * kTileBytes, kTileRowBytes);
              Unit::template dot<2 * Tap + kThere, 7, 6>();
              Unit::template load<6>(right + (1 - kThere) * dy_plane_, kTileRowBytes);
              Unit::template dot<2 * Tap + 1 - kThere, 7, 6>();
            }
          });
        }
      }
    each(all, [&]<int I>() { Unit::template store<I>(place(I), kTileRowBytes); });
  }

  // Adds the parts in their order and writes 16 × 16 filters through `block`, [channel of
  // x][tap][channel of dy].
  void finish(int64_t c_block, int64_t k_block, const float* sums, float* block) const {
    const int64_t taps = p_.filters.taps;
    const float* from = sums + (c_block * panels_ + k_block / 2) * taps * 2 * kTileFloats +
                        k_block % 2 * kTileFloats;
    for (int64_t tap = 0; tap < taps; ++tap, from += 2 * kTileFloats)
      for (int64_t i = 0; i < kTileFloats; i += kLanes) {
        Vector sum = load(from + i);
        for (int64_t part = 1; part < parts_; ++part) sum += load(from + part * sums_floats_ + i);
        store(block + (i / kChannelBlock * taps + tap) * kChannelBlock + i % kChannelBlock, sum);
      }
    store_filter_block(dw_, p_.filters, c_block, k_block, block);
  }

  const DirectProblem& p_;
  const bfloat16* x_;
  const bfloat16* dy_;
  float* dw_;
  BlockedShape in_;
  BlockedShape out_;
  int64_t panels_;
  int64_t groups_;
  int64_t parts_;
  int64_t sums_floats_;
  int64_t columns_;  // the width of x, including the borders
  int64_t band_;
  int64_t ring_;
  // bytes
  int64_t x_plane_;
  int64_t dy_plane_;
  bool whole_;  // all images at once
};

}  // namespace

void weight_gradient(const DirectProblem& p, const bfloat16* x, const bfloat16* dy, float* dw) {
  if (p.n == 0 || p.out().numel() == 0)
    return static_cast<void>(std::fill_n(dw, p.filters.k * p.filters.c * p.filters.taps, 0.0f));
  visit_tiles([&]<class Unit>() { WeightGradient<Unit>(p, x, dy, dw).run(); });
}

}  // namespace ringgrad::amx
