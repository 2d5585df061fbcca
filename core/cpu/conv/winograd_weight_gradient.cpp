// Weight gradient: dw = sum over tiles of Gᵀ [ (Bᵀ x B) ⊙ (A dy Aᵀ) ] G. Per block of tiles both transforms, then for
// each of the planes a matrix product over the tiles, added to accumulators [c][k]; Gᵀ … G once at the end. Where
// convolutions of bfloat16 images multiply pairs (WinogradProduct), integers are multiplied here, which costs 0.05 % of
// a gradient: transforms rounded to bfloat16 again would cost 1 %. All else is in float32.
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/integers.h"
#include "ringgrad/core/cpu/conv/tiles.h"
#include "ringgrad/core/cpu/conv/transforms_stride2.h"
#include "ringgrad/core/cpu/conv/winograd.h"

namespace ringgrad::conv {
namespace {

// Note [Who sums a weight gradient]
// Private: the blocks of tiles are dealt to a fixed number of parts, whatever the number of threads, and each part has
// accumulators of its own, which are added in order at the end. More parts feed more threads, and cost one write and
// one read of 36 C K floats each: 4 parts instead of 2 cost 2 % at 128 channels. Shared: where the accumulators are
// larger than the caches (from 256 channels on), all threads work on one large block, dividing first the channels of
// the transforms and then chunks of 32 x 32 accumulators. If that block is the only one, a chunk never leaves the cache
// of its thread.
struct Blocking {
  int64_t tiles;  // of a block
  int64_t parts;  // 0: shared
};
constexpr int64_t kLargestAccumulators = 4 << 20;  // bytes; more than this: shared
constexpr int64_t kPartsBytes = 10 << 20;          // accumulators of all parts
constexpr int64_t kMinTiles = 48;
constexpr int64_t kGroup = 64;  // tiles of both operands that stay cached while a chunk's register tiles read them

// The transforms of one operand: [panel of channels][product][row][channel of the panel]. A row is a tile; or two, as a
// word of integers, and before the words of each group of tiles is a row of their scales. One cache line between planes
// keeps them out of one cache set.
struct Panels {
  int64_t blocks, rows, products;
  int64_t plane(int64_t panel) const { return rows * panel_width(panel, blocks) + kChannelBlock; }
  int64_t offset(int64_t panel) const { return panel * products * (rows * kPanel + kChannelBlock); }
  int64_t floats() const { return offset(panels(blocks)); }
};

template <class Scheme, class T>
class WeightGradient {
  static constexpr int kProducts = Scheme::kEdge * Scheme::kEdge;
  static constexpr int kFactors = kFactorEdge<Scheme> * kFactorEdge<Scheme>;
  static constexpr int kTaps = Scheme::Filter::kIn * Scheme::Filter::kIn;
  static constexpr bool kPairs = std::is_same_v<WinogradProduct<Scheme, T>, BFloat16Product>;
  using Product = std::conditional_t<kPairs, Int16Product, Float32Product>;
  static constexpr bool kIntegers = std::is_same_v<Product, Int16Product>;
  static constexpr int64_t kGroupRows = kGroup / Product::kTerms + kIntegers;
  static constexpr int64_t kScratchPlane = kGroup * kLanes + kChannelBlock;
  static constexpr int64_t kScratch = kIntegers ? kProducts * kScratchPlane : 0;  // floats

 public:
  WeightGradient(const WinogradProblem& problem, const T* x, const T* dy, float* dw)
      : p_(problem),
        x_(x),
        dy_(dy),
        dw_(dw),
        grid_{p_.out.n, cpu::ceil_div(p_.out.h, Scheme::kOutputStep), cpu::ceil_div(p_.out.w, Scheme::kOutputStep)},
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
  // A block of T tiles reads and writes as many accumulators as there are factors, C K of each, and T (C + K) of each
  // product: T makes them equally many.
  Blocking choose_blocking() const {
    const int64_t tiles = grid_.count(), c = p_.in.channels(), k = p_.out.channels();
    const int64_t balanced = 2 * kFactors * c * k / (kProducts * (c + k));
    const int64_t block =
        cpu::ceil_div(tiles, cpu::ceil_div(tiles, std::clamp(balanced, kIntegers ? kGroup : kMinTiles, kMaxUnitTiles)));
    const int64_t bytes = kFactors * c * k * 4;
    if (bytes > kLargestAccumulators) return {block, 0};
    return {block, std::clamp<int64_t>(kPartsBytes / bytes, 1, std::min<int64_t>(16, cpu::ceil_div(tiles, block)))};
  }

  // A chunk of accumulators, [factor][c][k], belongs to a panel of c and a panel of k.
  struct Chunk {
    int64_t row_panel, column_panel;
    int64_t rows, columns;
    int64_t plane() const { return rows * columns + kChannelBlock; }
  };
  Chunk chunk(int64_t index) const {
    const int64_t row = index / panels(p_.out.blocks), column = index % panels(p_.out.blocks);
    return {row, column, panel_width(row, p_.in.blocks), panel_width(column, p_.out.blocks)};
  }
  int64_t chunk_count() const { return panels(p_.in.blocks) * panels(p_.out.blocks); }
  static constexpr int64_t kChunkFloats = kFactors * (kPanel * kPanel + kChannelBlock);

  void run_private() {
    const int64_t part_floats = chunk_count() * kChunkFloats;
    const Workspace<float> accumulators(p_.stream, blocking_.parts * part_floats);
    ThreadWorkspaces workspaces(p_.stream, x_panels_.floats() + dy_panels_.floats() + kScratch);
    parallel_for(p_.stream, blocking_.parts, 1, [&](int64_t part, int64_t) {
      const ThreadWorkspaces::Slice slice(workspaces);
      float *const x = slice.data(), *const dy = x + x_panels_.floats(), *const scratch = dy + dy_panels_.floats();
      const int64_t first = units_ * part / blocking_.parts, last = units_ * (part + 1) / blocking_.parts;
      for (int64_t unit = first; unit < last; ++unit) {
        const Tiles tiles = tiles_of(unit);
        for (int64_t block = 0; block < p_.in.blocks; ++block) transform_x(tiles, block, x, scratch);
        for (int64_t block = 0; block < p_.out.blocks; ++block) transform_dy(tiles, block, dy, scratch);
        const int64_t next = (unit + 1) * blocking_.tiles;
        TilePrefetcher next_x(x_, p_.in, grid_, Scheme::kInputStep, next, blocking_.tiles, kProducts);
        TilePrefetcher next_dy(dy_, p_.out, grid_, Scheme::kOutputStep, next, blocking_.tiles, kProducts);
        for (int product = 0; product < kProducts; ++product) {
          next_x.fetch(), next_dy.fetch();
          for (int64_t i = 0; i < chunk_count(); ++i)
            accumulate(tiles, product, chunk(i), x, dy, accumulators.data() + part * part_floats + i * kChunkFloats,
                       unit == first);
        }
      }
    });
    parallel_for(p_.stream, chunk_count(), 1, [&](int64_t i, int64_t) {
      finish(chunk(i), accumulators.data() + i * kChunkFloats, blocking_.parts, part_floats);
    });
  }

  void run_shared() {
    const Workspace<float> x(p_.stream, x_panels_.floats()), dy(p_.stream, dy_panels_.floats());
    // With a single block of tiles a chunk is finished as soon as it is summed, and needs no memory of its own.
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
        if (unit == units_ - 1) finish(chunk(i), sums, 1, 0);
      });
    }
  }

  int64_t rows() const { return kIntegers ? cpu::ceil_div(blocking_.tiles, kGroup) * kGroupRows : blocking_.tiles; }
  using Tiles = TileOrder<Scheme>;
  Tiles tiles_of(int64_t unit) const {
    const int64_t first = unit * blocking_.tiles;
    return Tiles(grid_, first, std::min(blocking_.tiles, grid_.count() - first), p_.out.h, p_.out.w);
  }

  // 16 channels of all tiles of a unit; integers by way of `scratch`, [product][tile][lane].
  void transform_x(const Tiles& tiles, int64_t block, float* panels, float* scratch) const {
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
      transform_operand<typename Scheme::Input>(x_, p_.in, x_panels_, Scheme::kInputStep, p_.offset, tiles, block, lane,
                                                panels, scratch);
  }
  void transform_dy(const Tiles& tiles, int64_t block, float* panels, float* scratch) const {
    for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
      transform_operand<typename Scheme::OutputAdjoint>(dy_, p_.out, dy_panels_, Scheme::kOutputStep, 0, tiles, block,
                                                        lane, panels, scratch);
  }
  template <class F>
  void transform_operand(const T* image, const BlockedShape& shape, const Panels& layout, int64_t step, int64_t offset,
                         const Tiles& tiles, int64_t block, int64_t lane, float* panels, float* scratch) const {
    const int64_t panel = block / 2;
    const int64_t width = panel_width(panel, shape.blocks), plane = layout.plane(panel);
    float* to = panels + layout.offset(panel) + block % 2 * kChannelBlock + lane;
    for (int64_t first = 0; first < tiles.count(); first += kGroup, to += kGroupRows * width) {
      const int64_t count = std::min(kGroup, tiles.count() - first), next_plane = kIntegers ? kScratchPlane : plane;
      float* next = kIntegers ? scratch : to;
      for (int64_t i = first; i < first + count; ++i, next += kIntegers ? kLanes : width)
        transform_square<F>(
            image + (tiles[i].image * shape.blocks + block) * shape.plane() + lane, shape.h, shape.w,
            tiles[i].row * step - offset, tiles[i].column * step - offset,
            [=](int row, int column, Vector v) { store(next + (row * Scheme::kEdge + column) * next_plane, v); });
      for (int product = 0; product < kProducts && kIntegers; ++product) {
        float* const scales = to + product * plane;
        store(scales, store_as_integers(scratch + product * kScratchPlane, count, scales + width, width));
      }
    }
  }

  // One product of a chunk: sums += over the tiles of a unit, but for those where dy's transform is 0.
  void accumulate(const Tiles& tiles, int product, const Chunk& chunk, const float* x, const float* dy, float* sums,
                  bool first) const {
    const float* left = x + x_panels_.offset(chunk.row_panel) + product * x_panels_.plane(chunk.row_panel);
    const float* right = dy + dy_panels_.offset(chunk.column_panel) + product * dy_panels_.plane(chunk.column_panel);
    const int64_t whole = 0;
    // several products may share a factor: the first of them starts its sum
    constexpr int kEdge = Scheme::kEdge;
    bool starts = first && product / kEdge < kFactorEdge<Scheme> && product % kEdge < kFactorEdge<Scheme>;
    float* const to = sums + factor_of<Scheme>(product) * chunk.plane();
    const auto [begin, end] = tiles.needing(product);
    for (int64_t group = begin / kGroup; begin < end && group * kGroup < end; ++group) {
      const int64_t skipped = std::max<int64_t>(0, begin - group * kGroup) / Product::kTerms;  // words
      const int64_t words = cpu::ceil_div(std::min(kGroup, end - group * kGroup), int64_t{Product::kTerms}) - skipped;
      const float* const x_group = left + group * kGroupRows * chunk.rows;
      const float* const dy_group = right + group * kGroupRows * chunk.columns;
      multiply<Product>({x_group + (kIntegers + skipped) * chunk.rows, 1, chunk.rows, words, &whole, 1, x_group},
                        chunk.rows,
                        {dy_group + (kIntegers + skipped) * chunk.columns, chunk.columns, kChannelBlock, dy_group},
                        chunk.columns, to, chunk.columns, !starts);
      starts = false;
    }
    if (starts) std::fill_n(to, chunk.rows * chunk.columns, 0.0f);
  }

  // Adds the parts of a chunk's accumulators, transforms them back and writes them into dw.
  void finish(const Chunk& chunk, const float* sums, int64_t parts, int64_t part_floats) const {
    alignas(64) float block[kChannelBlock * kTaps * kChannelBlock];  // [c][tap][k]
    for (int64_t c = 0; c < chunk.rows; c += kChannelBlock)
      for (int64_t k = 0; k < chunk.columns; k += kChannelBlock) {
        for (int64_t i = 0; i < kChannelBlock; ++i)
          for (int64_t lane = 0; lane < kChannelBlock; lane += kLanes)
            finish_filters(sums + (c + i) * chunk.columns + k + lane, chunk.plane(), parts, part_floats,
                           block + i * kTaps * kChannelBlock + lane);
        store_filter_block(dw_, p_.filters, 2 * chunk.row_panel + c / kChannelBlock,
                           2 * chunk.column_panel + k / kChannelBlock, block);
      }
  }
  static void finish_filters(const float* sums, int64_t plane, int64_t parts, int64_t part_floats, float* taps) {
    transform<typename Scheme::FilterAdjoint>(
        [&](int i, int j) {
          const float* const from = sums + (i * kFactorEdge<Scheme> + j) * plane;
          Vector sum = load(from);
          for (int64_t part = 1; part < parts; ++part) sum += load(from + part * part_floats);
          return sum;
        },
        [&](int i, int j, Vector v) { store(taps + (i * Scheme::FilterAdjoint::kOut + j) * kChannelBlock, v); });
  }

  const WinogradProblem& p_;
  const T *x_, *dy_;
  float* dw_;
  TileGrid grid_;
  Blocking blocking_;
  int64_t units_;
  Panels x_panels_, dy_panels_;
};

}  // namespace

template <class Scheme, class T>
void winograd_weight_gradient(const WinogradProblem& p, const T* x, const T* dy, float* dw) {
  if (p.in.n == 0) return static_cast<void>(std::fill_n(dw, p.filters.k * p.filters.c * p.filters.taps, 0.0f));
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
