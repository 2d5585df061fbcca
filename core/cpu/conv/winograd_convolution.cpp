// Forward pass and data gradient. Each block of tiles first takes the input transform, for example
// from 6 x 6 pixels of 16 channels in registers to 36 planes. Then follow as many matrix products
// with the transformed filters, and the output transform.
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/tiles.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Note [Private and shared blocks]
// Private: a thread takes a block of 12 to 48 tiles through all three stages. Its transforms, half
// a MiB, stay in the second-level cache. The filters' factors are computed beforehand and stream
// from the third level.
// Shared: this is used if the factors are larger than the caches (512 channels; the images are
// small there). All threads work on one large block. They divide the channels of the input
// transform, then the panels of outputs. Each panel of filters is transformed just before its use,
// so that 38 MB of factors never reach memory.
struct Blocking {
  int64_t tiles;  // in a block; a multiple of 4
  bool shared;
};
constexpr int64_t kPrivateFloats = 128 << 10;  // both transforms of a block: half a MiB
constexpr int64_t kLargestFactors = 16 << 20;  // bytes; more than this: shared
constexpr int64_t kSharedTiles = 128;
static_assert(kSharedTiles <= kMaxUnitTiles);

template <class Scheme>
Blocking choose_blocking(const FactorLayout& factors, int64_t tile_count) {
  if (factors.floats() * 4 > kLargestFactors) {
    const int64_t tiles = cpu::ceil_div(tile_count, cpu::ceil_div(tile_count, kSharedTiles));
    return {cpu::ceil_div(tiles, 4) * 4, true};
  }
  const int64_t floats_per_tile = Scheme::kEdge * Scheme::kEdge * (factors.rows + kPanel);
  return {std::clamp<int64_t>((kPrivateFloats / floats_per_tile + 6) / 12 * 12, 12, 48), false};
}

template <class Scheme, class T>
class Convolution {
  using Product = WinogradProduct<Scheme, T>;
  static constexpr int kProducts = Scheme::kEdge * Scheme::kEdge;

 public:
  Convolution(const WinogradProblem& problem, const T* x, const float* w, const float* bias,
              const T* addend, T* y)
      : p_(problem),
        x_(x),
        w_(w),
        addend_(addend),
        y_(y),
        grid_{p_.out.n, cpu::ceil_div(p_.out.h, Scheme::kOutputStep),
              cpu::ceil_div(p_.out.w, Scheme::kOutputStep)},
        layout_(kFactorEdge<Scheme>, p_.filters, p_.direction, Product::kTerms),
        blocking_(choose_blocking<Scheme>(layout_, grid_.count())),
        units_(cpu::ceil_div(grid_.count(), blocking_.tiles)),
        input_plane_(blocking_.tiles * layout_.rows + kChannelBlock),
        product_plane_(blocking_.tiles * kPanel + kChannelBlock),
        streams_(should_stream(y, p_.out.numel())),
        bias_(p_.stream, bias, p_.filters.k) {}

  void run() {
    if (blocking_.shared)
      run_shared();
    else
      run_private();
  }

 private:
  void run_private() {
    const Workspace<float> factors(p_.stream, layout_.floats());
    transform_filters(factors.data());
    ThreadWorkspaces workspaces(p_.stream, kProducts * (input_plane_ + product_plane_));
    parallel_for(p_.stream, units_, 1, [&](int64_t unit, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float* const inputs = slice.data();
      float* const products = inputs + kProducts * input_plane_;
      const Tiles tiles = tiles_of(unit);
      for (int64_t block = 0; block < p_.in.blocks; ++block) transform_inputs(tiles, block, inputs);
      const int64_t first = unit * blocking_.tiles;
      const int64_t calls = kProducts * layout_.panel_count();
      const auto prefetcher = [&](auto* image, const BlockedShape& shape, int64_t step,
                                  int64_t from) {
        return TilePrefetcher(image, shape, grid_, step, from, blocking_.tiles, calls);
      };
      auto next = prefetcher(x_, p_.in, Scheme::kInputStep, first + blocking_.tiles);
      // outputs that bypass the caches are not prefetched
      auto written = prefetcher(streams_ ? nullptr : y_, p_.out, Scheme::kOutputStep, first);
      auto added = prefetcher(addend_, p_.out, Scheme::kOutputStep, first);
      for (int64_t panel = 0; panel < layout_.panel_count(); ++panel)
        make_panel(tiles, panel, inputs, factors.data() + layout_.offset(panel), products,
                   [&] { next.fetch(), written.fetch(), added.fetch(); });
      stream_fence();
    });
  }

  void run_shared() {
    const Workspace<float> inputs(p_.stream, kProducts * input_plane_);
    ThreadWorkspaces workspaces(
        p_.stream, kProducts * product_plane_ + kFilterScratch + layout_.panel_floats());
    for (int64_t unit = 0; unit < units_; ++unit) {
      const Tiles tiles = tiles_of(unit);
      parallel_for(p_.stream, p_.in.blocks, 1,
                   [&](int64_t block, int64_t) { transform_inputs(tiles, block, inputs.data()); });
      parallel_for(p_.stream, layout_.panel_count(), 1, [&](int64_t panel, int64_t) {
        const ThreadWorkspaces::Slice slice(workspaces);
        float* const scratch = slice.data() + kProducts * product_plane_;
        float* const factors = scratch + kFilterScratch;
        transform_panel(panel, scratch, factors);
        make_panel(tiles, panel, inputs.data(), factors, slice.data(), [] {});
        stream_fence();
      });
    }
  }

  void transform_filters(float* factors) const {
    ThreadWorkspaces workspaces(p_.stream, kFilterScratch);
    parallel_for(p_.stream, layout_.panel_count(), 1, [&](int64_t panel, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      transform_panel(panel, slice.data(), factors + layout_.offset(panel));
    });
  }
  void transform_panel(int64_t panel, float* scratch, float* factors) const {
    transform_filter_panel<Scheme, Product>(w_, p_.filters, p_.direction, panel, scratch, factors);
  }

  using Tiles = TileOrder<Scheme>;
  Tiles tiles_of(int64_t unit) const {
    const int64_t first = unit * blocking_.tiles;
    return Tiles(grid_, first, std::min(blocking_.tiles, grid_.count() - first), p_.out.h,
                 p_.out.w);
  }

  // Transforms 16 channels of all tiles of a unit: inputs[product][tile][channel].
  void transform_inputs(const Tiles& tiles, int64_t block, float* inputs) const {
    constexpr int kEdge = Scheme::kEdge;
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes) {
      float* to = inputs + (block * kChannelBlock + lane) / Product::kTerms;
      for (int64_t i = 0; i < tiles.count(); ++i, to += layout_.rows) {
        if (blocking_.shared) fetch_ahead(x_, p_.in, Scheme::kInputStep, tiles, i, block);
        const auto at = [&](int i, int j) {
          return Product::neighbours(to + (i * kEdge + j) * input_plane_);
        };
        transform_square<typename Scheme::Input>(
            x_ + (tiles[i].image * p_.in.blocks + block) * p_.in.plane() + lane, p_.in.h, p_.in.w,
            tiles[i].row * Scheme::kInputStep - p_.offset,
            tiles[i].column * Scheme::kInputStep - p_.offset, [&](int i, const Vector* row) {
              RINGGRAD_UNROLL
              for (int j = 0; j + 1 < kEdge; j += 2)
                store_two(at(i, j), row[j], at(i, j + 1), row[j + 1]);
              if constexpr (kEdge % 2) store(at(i, kEdge - 1), row[kEdge - 1]);
            });
      }
    }
  }

  // Computes one panel of output channels for all tiles of a unit. between() is called between the
  // matrix products.
  template <class Between>
  void make_panel(const Tiles& tiles, int64_t panel, const float* inputs, const float* factors,
                  float* products, Between between) const {
    const int64_t width = panel_width(panel, layout_.blocks);
    const int64_t whole = 0;
    for (int product = 0; product < kProducts; ++product) {
      between();
      const auto [begin, end] = tiles.needing(product);
      // Rounded down, so that multiply()'s last group of four ends within blocking_.tiles.
      const int64_t first = begin / 4 * 4;
      const LeftMatrix left{inputs + product * input_plane_ + first * layout_.rows,
                            layout_.rows,
                            1,
                            layout_.rows,
                            &whole,
                            1};
      const RightMatrix right = packed_panel(
          factors + factor_of<Scheme>(product) * layout_.plane(panel), layout_.rows, width);
      if (begin < end)
        multiply<Product>(left, end - first, right, width,
                          products + product * product_plane_ + first * width, width, false);
    }
    for (int64_t block = 2 * panel; block < 2 * panel + width / kChannelBlock; ++block)
      for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
        transform_outputs(tiles, block, lane, products + block % 2 * kChannelBlock + lane, width);
  }

  // A product that no tile needs holds old memory, but it reaches no output inside the image.
  void transform_outputs(const Tiles& tiles, int64_t block, int64_t lane, const float* from,
                         int64_t width) const {
    const Vector bias = bias_.load(block * kChannelBlock + lane);
    for (int64_t i = 0; i < tiles.count(); ++i, from += width) {
      const int64_t top = tiles[i].row * Scheme::kOutputStep;
      const int64_t left = tiles[i].column * Scheme::kOutputStep;
      T* const to = y_ + (tiles[i].image * p_.out.blocks + block) * p_.out.plane() +
                    (top * p_.out.w + left) * kChannelBlock + lane;
      const T* const addend = addend_ ? addend_ + (to - y_) : nullptr;
      transform_clipped<typename Scheme::Output>(
          p_.out.h, p_.out.w, top, left,
          [&](int i, int j) { return load(from + (i * Scheme::kEdge + j) * product_plane_); },
          [&](int64_t offset, Vector v) {
            v += bias;
            if (addend) v += load(addend + offset);
            store_or_stream(to + offset, v, streams_);
          });
    }
  }

  const WinogradProblem& p_;
  const T* x_;
  const float* w_;
  const T* addend_;
  T* y_;
  TileGrid grid_;
  FactorLayout layout_;
  Blocking blocking_;
  int64_t units_;
  // floats between planes: an odd number of cache lines
  int64_t input_plane_;
  int64_t product_plane_;
  bool streams_;
  Bias bias_;
};

}  // namespace

template <class Scheme, class T>
void winograd_convolution(const WinogradProblem& problem, const T* x, const float* w,
                          const float* bias, const T* addend, T* y) {
  if (problem.in.n > 0) Convolution<Scheme, T>(problem, x, w, bias, addend, y).run();
}

#define INSTANTIATE(Scheme, T)                                                               \
  template void winograd_convolution<Scheme>(const WinogradProblem&, const T*, const float*, \
                                             const float*, const T*, T*)
#define INSTANTIATE_SCHEMES(T) \
  INSTANTIATE(F43, T);         \
  INSTANTIATE(F25, T);         \
  INSTANTIATE(F45, T);         \
  INSTANTIATE(Stride2, T);     \
  INSTANTIATE(Stride2Backward, T)
INSTANTIATE_SCHEMES(float);
INSTANTIATE_SCHEMES(bfloat16);

}  // namespace ringgrad::conv
