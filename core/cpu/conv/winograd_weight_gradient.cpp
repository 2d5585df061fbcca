// Weight gradient: dw = Σ over tiles of Gᵀ [ (Bᵀ x B) ⊙ (A dy Aᵀ) ] G. Each block of tiles takes
// both transforms. Then each plane takes a matrix product over the tiles, which is added to
// accumulators [c][k]. Gᵀ … G comes at the end. If convolutions of bfloat16 images multiply pairs
// (WinogradProduct), this file multiplies integers, with an error of 0.05 % of a gradient;
// transforms rounded to bfloat16 again would have 1 %. All else is in float32.
#include <bit>

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/integers.h"
#include "ringgrad/core/cpu/conv/tiles.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Note [Who sums a weight gradient]
// Private: the blocks of tiles are dealt to a fixed number of parts, whatever the number of
// threads. A thread sums a part in its own accumulators, which stay in its cache from part to part,
// and transforms them back. The parts' gradients have a fourth of the numbers and are added in
// order at the end.
// Shared: this is used if the accumulators are larger than the caches (from 256 channels on). All
// threads work on one large block. They divide first the channels of the transforms and then chunks
// of 32 x 32 accumulators. If that block is the only one, a chunk never leaves the cache of its
// thread.
struct Blocking {
  int64_t tiles;  // in a block
  int64_t parts;  // 0: shared
};
constexpr int64_t kLargestAccumulators = 4 << 20;  // bytes; more than this: shared
// With more than this, pixels are prefetched again: see Note [What is fetched when].
constexpr int64_t kNearAccumulators = 512 << 10;
constexpr int64_t kMinParts = 4;
constexpr int64_t kMaxParts = 16;
constexpr int64_t kMinTiles = 48;
// The number of tiles of both operands that stay cached while a chunk's register tiles read them.
constexpr int64_t kGroup = 64;

// The transforms of one operand: [panel of channels][product][row][channel of the panel]. A row is
// one tile; as words of integers it is two tiles, and a row of their scales precedes each group of
// tiles. Planes have an odd number of cache lines, which keeps them out of one cache set.
struct Panels {
  int64_t blocks;
  int64_t rows;
  int64_t products;
  int64_t plane(int64_t panel) const {
    return (rows * panel_width(panel, blocks) / kChannelBlock | 1) * kChannelBlock;
  }
  int64_t offset(int64_t panel) const { return panel * products * (rows * kPanel + kChannelBlock); }
  int64_t floats() const { return offset(panels(blocks)); }
};

template <class Scheme, class T>
class WeightGradient {
  static constexpr int kProducts = Scheme::kEdge * Scheme::kEdge;
  static constexpr int kFactors = kFactorEdge<Scheme> * kFactorEdge<Scheme>;
  static constexpr int kTaps = Scheme::Filter::kIn * Scheme::Filter::kIn;
  static constexpr int64_t kFilterBlock = kTaps * kChannelBlock * kChannelBlock;  // floats
  static constexpr bool kIntegers = std::is_same_v<WinogradProduct<Scheme, T>, BFloat16Product>;
  using Product = std::conditional_t<kIntegers, Int16Product, Float32Product>;
  static constexpr int64_t kGroupRows = kGroup / Product::kTerms + kIntegers;
  static constexpr int64_t kScratchPlane = kGroup * kLanes + kChannelBlock;
  static constexpr int64_t kScratch = kIntegers ? kProducts * kScratchPlane : 0;  // floats

 public:
  WeightGradient(const WinogradProblem& problem, const T* x, const T* dy, float* dw)
      : p_(problem),
        x_(x),
        dy_(dy),
        dw_(dw),
        grid_{p_.out.n, cpu::ceil_div(p_.out.h, Scheme::kOutputStep),
              cpu::ceil_div(p_.out.w, Scheme::kOutputStep)},
        blocking_(choose_blocking()),
        units_(cpu::ceil_div(grid_.count(), blocking_.tiles)),
        x_panels_{p_.in.blocks, rows(), kProducts},
        dy_panels_{p_.out.blocks, rows(), kProducts} {}

  void run() {
    if (blocking_.parts)
      run_private();
    else
      run_shared();
  }

 private:
  int64_t accumulator_bytes() const {
    return kFactors * p_.in.channels() * p_.out.channels() * int64_t{sizeof(float)};
  }

  // A block of T tiles reads and writes C K accumulators for each factor, and T (C + K) numbers for
  // each product. T makes these equal, or half as many if the accumulators are in a thread's cache.
  Blocking choose_blocking() const {
    const int64_t tiles = grid_.count();
    const int64_t c = p_.in.channels();
    const int64_t k = p_.out.channels();
    const int64_t equally_many = 2 * kFactors * c * k / (kProducts * (c + k));
    const int64_t least = kIntegers ? kGroup : kMinTiles;
    const bool shared = accumulator_bytes() > kLargestAccumulators;
    const int64_t wanted =
        std::clamp(shared ? equally_many : equally_many / 2, least, kMaxUnitTiles);
    const int64_t blocks = cpu::ceil_div(tiles, wanted);
    if (shared) return {cpu::ceil_div(tiles, blocks), 0};
    // Each part has two blocks or more, and all parts have equally many.
    const auto pairs = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(blocks) / 2));
    const int64_t parts = std::clamp(pairs, std::min(blocks, kMinParts), kMaxParts);
    const int64_t even = cpu::ceil_div(tiles, cpu::ceil_div(blocks, parts) * parts);
    const int64_t block = kIntegers ? cpu::ceil_div(even, kGroup) * kGroup : even;
    return {block, std::min(parts, cpu::ceil_div(tiles, block))};
  }

  // A chunk of accumulators, [factor][c][k], belongs to a panel of c and a panel of k.
  struct Chunk {
    int64_t row_panel;
    int64_t column_panel;
    int64_t rows;
    int64_t columns;
    int64_t plane() const { return rows * columns + kChannelBlock; }
  };
  Chunk chunk(int64_t index) const {
    const int64_t row = index / panels(p_.out.blocks);
    const int64_t column = index % panels(p_.out.blocks);
    return {row, column, panel_width(row, p_.in.blocks), panel_width(column, p_.out.blocks)};
  }
  int64_t chunk_count() const { return panels(p_.in.blocks) * panels(p_.out.blocks); }
  static constexpr int64_t kChunkFloats = kFactors * (kPanel * kPanel + kChannelBlock);

  void run_private() {
    const int64_t part_floats = p_.in.blocks * p_.out.blocks * kFilterBlock;
    const Workspace<float> gradients(p_.stream, blocking_.parts * part_floats);
    const int64_t accumulators = chunk_count() * kChunkFloats;
    ThreadWorkspaces workspaces(p_.stream,
                                accumulators + x_panels_.floats() + dy_panels_.floats() + kScratch);
    parallel_for(p_.stream, blocking_.parts, 1, [&](int64_t part, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float* const sums = slice.data();
      float* const x = sums + accumulators;
      float* const dy = x + x_panels_.floats();
      float* const scratch = dy + dy_panels_.floats();
      const int64_t first = units_ * part / blocking_.parts;
      const int64_t last = units_ * (part + 1) / blocking_.parts;
      for (int64_t unit = first; unit < last; ++unit) {
        const Tiles tiles = tiles_of(unit);
        for (int64_t block = 0; block < p_.in.blocks; ++block)
          transform_x(tiles, block, x, scratch);
        for (int64_t block = 0; block < p_.out.blocks; ++block)
          transform_dy(tiles, block, dy, scratch);
        const int64_t next = (unit + 1) * blocking_.tiles;
        const int64_t calls = kProducts * chunk_count();
        TilePrefetcher next_x(x_, p_.in, grid_, Scheme::kInputStep, next, blocking_.tiles, calls);
        TilePrefetcher next_dy(dy_, p_.out, grid_, Scheme::kOutputStep, next, blocking_.tiles,
                               calls);
        for (int product = 0; product < kProducts; ++product)
          for (int64_t i = 0; i < chunk_count(); ++i) {
            next_x.fetch();
            next_dy.fetch();
            accumulate(tiles, product, chunk(i), x, dy, sums + i * kChunkFloats, unit == first);
          }
      }
      float* const gradient = gradients.data() + part * part_floats;
      for (int64_t i = 0; i < chunk_count(); ++i)
        for_each_filter_block(chunk(i), [&](int64_t c_block, int64_t k_block, int64_t offset) {
          finish(sums + i * kChunkFloats + offset, chunk(i),
                 gradient + (c_block * p_.out.blocks + k_block) * kFilterBlock);
        });
    });
    parallel_for(p_.stream, p_.in.blocks * p_.out.blocks, 1, [&](int64_t block, int64_t) {
      float* const sum = gradients.data() + block * kFilterBlock;
      for (int64_t part = 1; part < blocking_.parts; ++part)
        for (int64_t i = 0; i < kFilterBlock; i += kLanes)
          store(sum + i, load(sum + i) + load(sum + part * part_floats + i));
      store_filter_block(dw_, p_.filters, block / p_.out.blocks, block % p_.out.blocks, sum);
    });
  }

  void run_shared() {
    const Workspace<float> x(p_.stream, x_panels_.floats());
    const Workspace<float> dy(p_.stream, dy_panels_.floats());
    // With a single block of tiles a chunk is finished as soon as it is summed, and needs no memory
    // of its own.
    const bool single = units_ == 1;
    const Workspace<float> accumulators(p_.stream, single ? 0 : chunk_count() * kChunkFloats);
    ThreadWorkspaces workspaces(p_.stream, std::max(single ? kChunkFloats : 0, kScratch));
    for (int64_t unit = 0; unit < units_; ++unit) {
      const Tiles tiles = tiles_of(unit);
      parallel_for(p_.stream, p_.in.blocks + p_.out.blocks, 1, [&](int64_t block, int64_t) {
        const ThreadWorkspaces::Slice slice(workspaces);
        if (block < p_.in.blocks)
          transform_x(tiles, block, x.data(), slice.data());
        else
          transform_dy(tiles, block - p_.in.blocks, dy.data(), slice.data());
      });
      parallel_for(p_.stream, chunk_count(), 1, [&](int64_t i, int64_t) {
        const ThreadWorkspaces::Slice slice(workspaces);
        float* const sums = single ? slice.data() : accumulators.data() + i * kChunkFloats;
        for (int product = 0; product < kProducts; ++product)
          accumulate(tiles, product, chunk(i), x.data(), dy.data(), sums, unit == 0);
        if (unit < units_ - 1) return;
        for_each_filter_block(chunk(i), [&](int64_t c_block, int64_t k_block, int64_t offset) {
          alignas(64) float block[kFilterBlock];
          finish(sums + offset, chunk(i), block);
          store_filter_block(dw_, p_.filters, c_block, k_block, block);
        });
      });
    }
  }

  int64_t rows() const {
    return kIntegers ? cpu::ceil_div(blocking_.tiles, kGroup) * kGroupRows : blocking_.tiles;
  }
  using Tiles = TileOrder<Scheme>;
  Tiles tiles_of(int64_t unit) const {
    const int64_t first = unit * blocking_.tiles;
    return Tiles(grid_, first, std::min(blocking_.tiles, grid_.count() - first), p_.out.h,
                 p_.out.w);
  }

  // Transforms 16 channels of all tiles of a unit. Integers are made in `scratch`,
  // [product][tile][lane].
  void transform_x(const Tiles& tiles, int64_t block, float* panels, float* scratch) const {
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
      transform_operand<typename Scheme::Input>(x_, p_.in, x_panels_, Scheme::kInputStep, p_.offset,
                                                tiles, block, lane, panels, scratch);
  }
  void transform_dy(const Tiles& tiles, int64_t block, float* panels, float* scratch) const {
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
      transform_operand<typename Scheme::OutputAdjoint>(
          dy_, p_.out, dy_panels_, Scheme::kOutputStep, 0, tiles, block, lane, panels, scratch);
  }
  template <class F>
  void transform_operand(const T* image, const BlockedShape& shape, const Panels& layout,
                         int64_t step, int64_t offset, const Tiles& tiles, int64_t block,
                         int64_t lane, float* panels, float* scratch) const {
    const int64_t panel = block / 2;
    const int64_t width = panel_width(panel, shape.blocks);
    const int64_t plane = layout.plane(panel);
    const bool fetches_ahead = accumulator_bytes() > kNearAccumulators;
    float* to = panels + layout.offset(panel) + block % 2 * kChannelBlock + lane;
    for (int64_t first = 0; first < tiles.count(); first += kGroup, to += kGroupRows * width) {
      const int64_t count = std::min(kGroup, tiles.count() - first);
      const int64_t next_plane = kIntegers ? kScratchPlane : plane;
      float* next = kIntegers ? scratch : to;
      for (int64_t i = first; i < first + count; ++i, next += kIntegers ? kLanes : width) {
        if (fetches_ahead) fetch_ahead(image, shape, step, tiles, i, block);
        transform_square<F>(image + (tiles[i].image * shape.blocks + block) * shape.plane() + lane,
                            shape.h, shape.w, tiles[i].row * step - offset,
                            tiles[i].column * step - offset, [=](int i, const Vector* row) {
                              RINGGRAD_UNROLL
                              for (int j = 0; j < Scheme::kEdge; ++j)
                                store(next + (i * Scheme::kEdge + j) * next_plane, row[j]);
                            });
      }
      for (int product = 0; product < kProducts && kIntegers; ++product) {
        float* const scales = to + product * plane;
        store(scales,
              store_as_integers(scratch + product * kScratchPlane, count, scales + width, width));
      }
    }
  }

  // Computes one product of a chunk: sums += over the tiles of a unit, except those where dy's
  // transform is 0.
  void accumulate(const Tiles& tiles, int product, const Chunk& chunk, const float* x,
                  const float* dy, float* sums, bool first) const {
    const float* left =
        x + x_panels_.offset(chunk.row_panel) + product * x_panels_.plane(chunk.row_panel);
    const float* right =
        dy + dy_panels_.offset(chunk.column_panel) + product * dy_panels_.plane(chunk.column_panel);
    const int64_t whole = 0;
    // several products may share a factor; the first of them begins its sum
    constexpr int kEdge = Scheme::kEdge;
    bool starts =
        first && product / kEdge < kFactorEdge<Scheme> && product % kEdge < kFactorEdge<Scheme>;
    float* const to = sums + factor_of<Scheme>(product) * chunk.plane();
    const auto [begin, end] = tiles.needing(product);
    for (int64_t group = begin / kGroup; begin < end && group * kGroup < end; ++group) {
      // Counted in words.
      const int64_t skipped = std::max<int64_t>(0, begin - group * kGroup) / Product::kTerms;
      const int64_t words =
          cpu::ceil_div(std::min(kGroup, end - group * kGroup), int64_t{Product::kTerms}) - skipped;
      const float* const x_group = left + group * kGroupRows * chunk.rows;
      const float* const dy_group = right + group * kGroupRows * chunk.columns;
      multiply<Product>(
          {x_group + (kIntegers + skipped) * chunk.rows, 1, chunk.rows, words, &whole, 1, x_group},
          chunk.rows,
          {dy_group + (kIntegers + skipped) * chunk.columns, chunk.columns, kChannelBlock,
           dy_group},
          chunk.columns, to, chunk.columns, !starts);
      starts = false;
    }
    if (starts) std::fill_n(to, chunk.rows * chunk.columns, 0.0f);
  }

  // Calls body(c_block, k_block, offset) for each 16 x 16 filters of a chunk. Their accumulators
  // begin at `offset`.
  template <class Body>
  static void for_each_filter_block(const Chunk& chunk, const Body& body) {
    for (int64_t c = 0; c < chunk.rows; c += kChannelBlock)
      for (int64_t k = 0; k < chunk.columns; k += kChannelBlock)
        body(2 * chunk.row_panel + c / kChannelBlock, 2 * chunk.column_panel + k / kChannelBlock,
             c * chunk.columns + k);
  }

  // Transforms the accumulators of 16 x 16 filters back, into block[c][tap][k].
  static void finish(const float* sums, const Chunk& chunk, float* block) {
    for (int64_t c = 0; c < kChannelBlock;
         ++c, sums += chunk.columns, block += kTaps * kChannelBlock)
      for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
        transform<typename Scheme::FilterAdjoint>(
            [&](int i, int j) {
              return load(sums + (i * kFactorEdge<Scheme> + j) * chunk.plane() + lane);
            },
            [&](int i, const Vector* row) {
              constexpr int kEdge = Scheme::FilterAdjoint::kOut;
              for (int j = 0; j < kEdge; ++j)
                store(block + (i * kEdge + j) * kChannelBlock + lane, row[j]);
            });
  }

  const WinogradProblem& p_;
  const T* x_;
  const T* dy_;
  float* dw_;
  TileGrid grid_;
  Blocking blocking_;
  int64_t units_;
  Panels x_panels_;
  Panels dy_panels_;
};

}  // namespace

template <class Scheme, class T>
void winograd_weight_gradient(const WinogradProblem& p, const T* x, const T* dy, float* dw) {
  if (p.in.n == 0)
    return static_cast<void>(std::fill_n(dw, p.filters.k * p.filters.c * p.filters.taps, 0.0f));
  WeightGradient<Scheme, T>(p, x, dy, dw).run();
}

#define INSTANTIATE(Scheme, T) \
  template void winograd_weight_gradient<Scheme>(const WinogradProblem&, const T*, const T*, float*)
#define INSTANTIATE_SCHEMES(T) \
  INSTANTIATE(F43, T);         \
  INSTANTIATE(F25, T);         \
  INSTANTIATE(F45, T);         \
  INSTANTIATE(Stride2, T)
INSTANTIATE_SCHEMES(float);
INSTANTIATE_SCHEMES(bfloat16);

}  // namespace ringgrad::conv
