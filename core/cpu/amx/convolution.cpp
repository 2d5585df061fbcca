// Forward pass and data gradient on tiles. A unit of work is some output rows of some images. It
// first copies the part of x that it needs into a window, in which up to 32 channels of a pixel lie
// side by side: a row of a left tile. The 16 rows of such a tile are either 16 pixels of an output
// row or the same pixel of 16 images, whichever fills the tile better:
//
//   pixels   window [group of channels][row][column][channel], with columns of zeros for the border
//   images   window [group of channels][row][column][image][channel]; a tap outside of the image is
//            left out
//
// Right tiles are filters: 32 channels of x by 16 of y. Two left and two right tiles are multiplied
// at a time into four tiles of sums, over all channels and taps. On an Emerald Rapids this reaches
// half of the processor's peak if all tiles are in the first-level cache. At most every second tile
// may come from the second level.
#include "ringgrad/core/cpu/amx/convolution.h"

#include "ringgrad/core/cpu/amx/tile_unit.h"

namespace ringgrad::amx {
namespace {

using namespace conv;

constexpr int64_t kWindowBytes = 640 << 10;  // for a second-level cache of one or two megabytes
constexpr int64_t kLeastUnits = 8;
constexpr int64_t kTileFloats = kTileBytes / 4;

template <class Unit>
class Convolution {
 public:
  Convolution(const DirectProblem& problem, const bfloat16* x, const float* w, const float* bias,
              const bfloat16* addend, bfloat16* y)
      : p_(problem),
        x_(x),
        addend_(addend),
        y_(y),
        in_{p_.n, p_.groups(), p_.rows.input, p_.columns.input},
        out_(p_.out()),
        step_(p_.rows.in_step()),
        depth_(in_.blocks == 1 ? kChannelBlock : 2 * kChannelBlock),
        groups_((in_.channels() + depth_ - 1) / depth_),
        image_groups_((p_.n + kTileRows - 1) / kTileRows),
        images_((p_.n + image_groups_ - 1) / image_groups_),
        pixels_(least_pixels()),
        by_pixels_(pixels_ >= 14 || pixels_ > images_),
        tile_step_(depth_ / 2 * kTileRowBytes),
        filters_(p_.stream, panels() * panel_bytes() / 4),
        bias_(p_.stream, bias, p_.filters.k) {
    if (by_pixels_) {
      image_groups_ = p_.n;
      images_ = 1;
    }
    rows_ = by_pixels_ ? pixels_ : images_;
    pixel_bytes_ = images_ * depth_ * 2;
    row_stride_ = depth_ * 2 * (by_pixels_ ? step_ : 1);
    first_column_ = by_pixels_ ? p_.columns.begin() : 0;
    columns_ = by_pixels_
                   ? (p_.columns.phase(0).outputs - 1) * step_ + p_.columns.end() - first_column_
                   : in_.w;
    plan_bands();
    prepare_filters(w);
  }

  void run() {
    TileShapes shapes;  // sums: 0 to 3, left: 4, 5, right: 6, 7
    for (int tile = 0; tile < 4; ++tile) shapes.set(tile, rows_, kTileRowBytes);
    for (int tile = 4; tile < 6; ++tile) shapes.set(tile, rows_, depth_ * 2);
    for (int tile = 6; tile < 8; ++tile) shapes.set(tile, depth_ / 2, kTileRowBytes);
    ThreadWorkspaces workspaces(p_.stream, (groups_ * plane_ + zeros_) / 4 + 4 * kTileFloats);
    parallel_for(p_.stream, image_groups_ * bands_, 1, [&](int64_t unit, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float* const sums = slice.data();
      char* const window = reinterpret_cast<char*>(sums + 4 * kTileFloats);
      Unit::configure(shapes);
      run_unit(unit / bands_ * images_, unit % bands_ * band_, window, sums);
      Unit::release();
    });
  }

 private:
  // The position of a left tile's outputs, and its taps.
  struct Tile {
    // the first output, in y
    int64_t row;
    int64_t column;
    // the input of the first tap, which may be outside
    int64_t top;
    int64_t left;
    int64_t first_row_tap;
    int64_t end_row_tap;
    int64_t first_column_tap;
    int64_t end_column_tap;
  };
  struct Pair {
    Tile tiles[2];
    int count = 0;
    int64_t panel = 0;
  };

  // Returns the least number of pixels among the phases that have outputs.
  int64_t least_pixels() const {
    int64_t least = kTileRows;
    for (int64_t i = 0; i < p_.columns.out_step(); ++i)
      if (const int64_t outputs = p_.columns.phase(i).outputs) least = std::min(least, outputs);
    return least;
  }

  int64_t panels() const { return (out_.blocks + 1) / 2; }
  int64_t panel_bytes() const { return groups_ * p_.filters.taps * 2 * tile_step_; }

  // A band has as many output rows of each phase as fit into the window, or fewer if there would
  // not be enough units for the threads.
  void plan_bands() {
    const int64_t outputs = p_.rows.phase(0).outputs;
    const int64_t taps = p_.rows.end() - p_.rows.begin();
    const int64_t fitting = kWindowBytes / (groups_ * columns_ * pixel_bytes_);
    const int64_t shared = (outputs * image_groups_ + kLeastUnits - 1) / kLeastUnits;
    band_ = std::clamp<int64_t>(std::min((fitting - taps) / step_ + 1, shared), 1, outputs);
    bands_ = (outputs + band_ - 1) / band_;
    plane_ = ((band_ - 1) * step_ + taps) * columns_ * pixel_bytes_;
    zeros_ = kTileRows * row_stride_;
  }

  // [panel of 32 channels of y][group of channels of x][phase, tap][two tiles][pair of channels of
  // x][channel of y][2]
  void prepare_filters(const float* w) {
    const int64_t taps = p_.filters.taps;
    auto* const filters = reinterpret_cast<char*>(filters_.data());
    if (groups_ * depth_ > in_.channels()) std::fill_n(filters, panels() * panel_bytes(), 0);
    ThreadWorkspaces workspaces(p_.stream, 2 * taps * kChannelBlock * kChannelBlock);
    parallel_for(p_.stream, out_.blocks, 1, [&](int64_t column_block, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float* const block = slice.data() + taps * kChannelBlock * kChannelBlock;
      for (int64_t row_block = 0; row_block < in_.blocks; ++row_block) {
        load_filter_block(w, p_.filters, p_.direction, row_block, column_block, slice.data(),
                          block);
        const int64_t channel = row_block * kChannelBlock;
        char* const group = filters + column_block / 2 * panel_bytes() +
                            channel / depth_ * taps * 2 * tile_step_ +
                            column_block % 2 * tile_step_ + channel % depth_ / 2 * kTileRowBytes;
        for_each_phase(p_, [&](const Phase& phase) {
          for (int64_t i = 0; i < phase.rows.taps; ++i)
            for (int64_t j = 0; j < phase.columns.taps; ++j) {
              const int64_t tap = (phase.rows.first + i * phase.rows.tap_step) * p_.columns.filter +
                                  phase.columns.first + j * phase.columns.tap_step;
              char* const tile =
                  group + (phase.taps_before + i * phase.columns.taps + j) * 2 * tile_step_;
              store_pairs(block + tap * kChannelBlock, taps * kChannelBlock, tile);
            }
        });
      }
    });
  }

  // Stores 16 rows of 16 numbers as 8 rows of pairs.
  static void store_pairs(const float* from, int64_t stride, char* tile) {
    for (int64_t i = 0; i < kChannelBlock; i += 2, tile += kTileRowBytes)
      for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
        store(reinterpret_cast<float*>(tile) + lane,
              pair_of(load(from + i * stride + lane), load(from + (i + 1) * stride + lane)));
  }

  // -- one unit -----------------------------------------------------------------------------------

  void run_unit(int64_t image, int64_t first, char* window, float* sums) const {
    const int64_t top = std::max<int64_t>(0, first * step_ + p_.rows.begin());
    const int64_t bottom = std::min(in_.h, (first + band_ - 1) * step_ + p_.rows.end());
    fill_window(image, top, bottom, window);
    // A pair is written after the products of the next pair have been issued, because its sums are
    // complete by then.
    Pair last;
    for (int64_t panel = 0; panel < panels(); ++panel)
      for_each_phase(p_, [&](const Phase& phase) {
        for_each_pair(phase, first, [&](Pair pair) {
          pair.panel = panel;
          multiply(phase, pair, window, top);
          if (last.count) write(last, image, sums);
          store_sums(sums);
          last = pair;
        });
      });
    if (last.count) write(last, image, sums);
  }

  template <class Body>
  void for_each_pair(const Phase& phase, int64_t first, Body&& body) const {
    const int64_t last = std::min(first + band_, phase.rows.outputs);
    const int64_t outputs = phase.columns.outputs;
    Pair pair;
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < outputs; j += by_pixels_ ? rows_ : 1) {
        pair.tiles[pair.count++] = tile_at(phase, i, by_pixels_ ? std::min(j, outputs - rows_) : j);
        if (pair.count < 2) continue;
        body(pair);
        pair.count = 0;
      }
    if (pair.count == 1) {
      pair.tiles[1] = pair.tiles[0];
      body(pair);
    }
  }

  Tile tile_at(const Phase& phase, int64_t i, int64_t j) const {
    const int64_t top = i * step_ + phase.rows.offset;
    const int64_t left = j * step_ + phase.columns.offset;
    const auto first = [](int64_t at) { return std::max<int64_t>(0, -at); };
    return {phase.row + i * p_.rows.out_step(),
            phase.column + j * p_.columns.out_step(),
            top,
            left,
            first(top),
            std::min(phase.rows.taps, in_.h - top),
            by_pixels_ ? 0 : first(left),
            by_pixels_ ? phase.columns.taps : std::min(phase.columns.taps, in_.w - left)};
  }

  // Copies rows [top, bottom) of `images_` images. A tile of zeros follows all groups.
  void fill_window(int64_t image, int64_t top, int64_t bottom, char* window) const {
    const int64_t images = std::min(images_, p_.n - image);
    for (int64_t group = 0; group < groups_; ++group)
      for (int64_t row = top; row < bottom; ++row)
        for (int64_t i = 0; i < images; ++i)
          fill_row(
              image + i, group * depth_ / kChannelBlock, row,
              window + group * plane_ + (row - top) * columns_ * pixel_bytes_ + i * depth_ * 2);
    std::fill_n(window + groups_ * plane_, zeros_, 0);
  }

  void fill_row(int64_t image, int64_t block, int64_t row, char* to) const {
    static constexpr int64_t kBlockBytes = kChannelBlock * 2;
    const bfloat16* const from =
        x_ + ((image * in_.blocks + block) * in_.h + row) * in_.w * kChannelBlock;
    const bool second = depth_ > kChannelBlock && block + 1 < in_.blocks;
    const int64_t before = std::clamp<int64_t>(-first_column_, 0, columns_);
    const int64_t end = std::clamp<int64_t>(in_.w - first_column_, before, columns_);
    const auto clear = [&](int64_t begin, int64_t count) {
      for (int64_t j = begin; j < begin + count; ++j)
        std::fill_n(to + j * pixel_bytes_, depth_ * 2, 0);
    };
    clear(0, before);
    for (int64_t j = before; j < end; ++j) {
      const bfloat16* const pixel = from + (first_column_ + j) * kChannelBlock;
      std::memcpy(to + j * pixel_bytes_, pixel, kBlockBytes);
      if (second)
        std::memcpy(to + j * pixel_bytes_ + kBlockBytes, pixel + in_.plane(), kBlockBytes);
      else if (depth_ > kChannelBlock)
        std::fill_n(to + j * pixel_bytes_ + kBlockBytes, kBlockBytes, 0);
    }
    clear(end, columns_ - end);
  }

  // Computes the sums of two tiles of outputs for up to 32 channels. If only one of the two has a
  // tap, the other one multiplies zeros.
  void multiply(const Phase& phase, const Pair& pair, const char* window, int64_t top) const {
    const bool wide = 2 * pair.panel + 1 < out_.blocks;
    const Tile& a = pair.tiles[0];
    const Tile& b = pair.tiles[1];
    const char* const zeros = window + groups_ * plane_;
    const int64_t rows_begin = std::min(a.first_row_tap, b.first_row_tap);
    const int64_t rows_end = std::max(a.end_row_tap, b.end_row_tap);
    const int64_t columns_begin = std::min(a.first_column_tap, b.first_column_tap);
    const int64_t columns_end = std::max(a.end_column_tap, b.end_column_tap);
    Unit::template zero<0>();
    Unit::template zero<2>();
    Unit::template zero<1>();
    Unit::template zero<3>();
    for (int64_t group = 0; group < groups_; ++group) {
      const char* const plane = window + group * plane_;
      const char* const filters = reinterpret_cast<const char*>(filters_.data()) +
                                  pair.panel * panel_bytes() +
                                  (group * p_.filters.taps + phase.taps_before) * 2 * tile_step_;
      for (int64_t i = rows_begin; i < rows_end; ++i) {
        const auto row_of = [&](const Tile& tile) {
          return plane +
                 ((tile.top + i - top) * columns_ + tile.left - first_column_) * pixel_bytes_;
        };
        const char* const row_a = row_of(a);
        const char* const row_b = row_of(b);
        const bool has_a = i >= a.first_row_tap && i < a.end_row_tap;
        const bool has_b = i >= b.first_row_tap && i < b.end_row_tap;
        for (int64_t j = columns_begin; j < columns_end; ++j) {
          const bool in_a = has_a && j >= a.first_column_tap && j < a.end_column_tap;
          const bool in_b = has_b && j >= b.first_column_tap && j < b.end_column_tap;
          const char* const right = filters + (i * phase.columns.taps + j) * 2 * tile_step_;
          Unit::template load<6>(right, kTileRowBytes);
          Unit::template load<4>(in_a ? row_a + j * pixel_bytes_ : zeros, row_stride_);
          Unit::template dot<0, 4, 6>();
          Unit::template load<5>(in_b ? row_b + j * pixel_bytes_ : zeros, row_stride_);
          Unit::template dot<2, 5, 6>();
          if (!wide) continue;
          Unit::template load<7>(right + tile_step_, kTileRowBytes);
          Unit::template dot<1, 4, 7>();
          Unit::template dot<3, 5, 7>();
        }
      }
    }
  }

  static void store_sums(float* sums) {
    Unit::template store<0>(sums, kTileRowBytes);
    Unit::template store<1>(sums + kTileFloats, kTileRowBytes);
    Unit::template store<2>(sums + 2 * kTileFloats, kTileRowBytes);
    Unit::template store<3>(sums + 3 * kTileFloats, kTileRowBytes);
  }

  void write(const Pair& pair, int64_t image, const float* sums) const {
    const int64_t rows = by_pixels_ ? rows_ : std::min(images_, p_.n - image);
    const int64_t stride =
        by_pixels_ ? p_.columns.out_step() * kChannelBlock : out_.blocks * out_.plane();
    for (int64_t block = 2 * pair.panel; block < std::min(out_.blocks, 2 * pair.panel + 2); ++block)
      for (int t = 0; t < pair.count; ++t) {
        const float* from = sums + (2 * t + block % 2) * kTileFloats;
        const int64_t pixel = pair.tiles[t].row * out_.w + pair.tiles[t].column;
        bfloat16* to = y_ + (image * out_.blocks + block) * out_.plane() + pixel * kChannelBlock;
        for (int64_t i = 0; i < rows; ++i, from += kChannelBlock, to += stride)
          for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
            store(to + lane, load(from + lane) + bias_.load(block * kChannelBlock + lane) +
                                 addend_at(to + lane));
      }
  }

  Vector addend_at(const bfloat16* place) const {
    return addend_ ? load(addend_ + (place - y_)) : Vector{};
  }

  const DirectProblem& p_;
  const bfloat16* x_;
  const bfloat16* addend_;
  bfloat16* y_;
  BlockedShape in_;
  BlockedShape out_;
  int64_t step_;  // inputs from output to output
  // channels in a row of a left tile; number of such groups
  int64_t depth_;
  int64_t groups_;
  // images of a unit
  int64_t image_groups_;
  int64_t images_;
  // pixels that a tile could have; rows of a left tile
  int64_t pixels_;
  int64_t rows_;
  bool by_pixels_;     // rows are pixels, not images
  int64_t tile_step_;  // bytes of a right tile
  // bytes of a pixel of the window; bytes between rows of a left tile
  int64_t pixel_bytes_;
  int64_t row_stride_;
  // the window's columns
  int64_t first_column_;
  int64_t columns_;
  // output rows of a phase in a unit; number of such bands
  int64_t band_;
  int64_t bands_;
  // bytes of a group of the window; position of its tile of zeros
  int64_t plane_;
  int64_t zeros_;
  Workspace<float> filters_;
  Bias bias_;
};

}  // namespace

void convolution(const DirectProblem& p, const bfloat16* x, const float* w, const float* bias,
                 const bfloat16* addend, bfloat16* y) {
  if (p.out().numel() == 0) return;
  visit_tiles([&]<class Unit>() { Convolution<Unit>(p, x, w, bias, addend, y).run(); });
}

}  // namespace ringgrad::amx
