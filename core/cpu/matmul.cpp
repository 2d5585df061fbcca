// The matrix product on the CPU. bfloat16 uses the processor's tiles if it has them. Otherwise c is
// cut into pieces that parallel_for distributes, and one thread multiplies each. Register tiles
// multiply float32, and bfloat16 if the processor multiplies pairs. Eigen multiplies float64 and
// thin matrices.
#include "ringgrad/core/cpu/amx/matmul.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/cpu/packed_product.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

// Returns true if the rows of x [B, R, C] are contiguous. The stride of a dimension of size 1 has
// no meaning.
bool has_contiguous_rows(const Tensor& x) {
  const int64_t rows = x.shape()[1];
  const int64_t cols = x.shape()[2];
  return (cols == 1 || x.strides()[2] == 1) && (rows == 1 || x.strides()[1] >= cols);
}
bool has_contiguous_cols(const Tensor& x) {
  const int64_t rows = x.shape()[1];
  const int64_t cols = x.shape()[2];
  return (rows == 1 || x.strides()[1] == 1) && (cols == 1 || x.strides()[2] >= rows);
}
// Returns x, or a copy if no stride is 1 (a slice with steps) or rows repeat (an expanded vector).
Tensor direct(const Tensor& x) {
  return has_contiguous_rows(x) || has_contiguous_cols(x) ? x : as_contiguous(x);
}

template <class T>
Matrix<T> matrix_of(const Tensor& x, int64_t batch) {
  const int64_t rows = x.shape()[1];
  const int64_t cols = x.shape()[2];
  T* const data = x.data<T>() + batch * x.strides()[0];
  if (has_contiguous_rows(x)) return {data, rows, cols, rows == 1 ? cols : x.strides()[1]};
  return {data, rows, cols, cols == 1 ? rows : x.strides()[2], true};
}

struct Tiles {
  int64_t rows;
  int64_t cols;
};

// Chooses how c is cut: into about `pieces` tiles. There are fewer if a tile would take less than
// 20 µs of one core, and more of a large product, whose tiles stay in the caches. A tile packs its
// columns of b again, but its rows of a only if a is transposed. If it is not, tiles are high
// rather than wide.
Tiles choose_tiles(const Tensor& c, const Tensor& a, int64_t pieces) {
  constexpr int64_t kLeast = int64_t{1} << 19;
  constexpr int64_t kMost = int64_t{1} << 18;  // elements
  constexpr int64_t kSmallest = 32;
  const int64_t k = a.shape()[2];
  const int64_t work = std::max(kLeast, c.numel() * k / pieces);
  const int64_t most = std::min(kMost, work / std::max<int64_t>(1, k));
  const int64_t height = has_contiguous_rows(a) ? 4 : 1;
  const auto halved = [](int64_t size) { return ceil_div(size, 2 * kSmallest) * kSmallest; };
  Tiles tile{c.shape()[1], c.shape()[2]};
  while (tile.rows * tile.cols > most) {
    int64_t& larger = tile.rows < height * tile.cols ? tile.cols : tile.rows;
    if (larger <= kSmallest) break;
    larger = halved(larger);
  }
  return tile;
}

// Returns the number of tiles: four for each thread, so that none waits long for another one. A
// small c has fewer, because it takes as long to pack small tiles as to multiply them.
int64_t pieces_of(const Tensor& c, int64_t threads) {
  constexpr int64_t kPaysToPack = 192 * 192;
  if (threads == 1) return 1;
  return std::clamp(c.numel() / kPaysToPack, threads, 4 * threads);
}

// T is the type of the factors. Sums are float32 or float64, like c.
template <class T, class Sum = Accumulator<T>>
void matmul_tiles(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                  const Tensor& bias) {
  const int64_t batches = c.shape()[0];
  const int64_t m = c.shape()[1];
  const int64_t n = c.shape()[2];
  const int64_t k = a.shape()[2];
  const bool packs = std::is_same_v<Sum, float> && suits_packed_product(m, n, k);
  // Eigen's sums depend on the cut, so that must not depend on the number of threads.
  const Tiles tile = choose_tiles(c, a, packs ? pieces_of(c, thread_count(stream)) : 16);
  const int64_t row_tiles = ceil_div(m, tile.rows);
  const int64_t col_tiles = ceil_div(n, tile.cols);
  const Sum* const shift = bias.defined() ? bias.data<Sum>() : nullptr;
  // The number of small products in a unit.
  const int64_t small = ceil_div(1 << 19, std::max<int64_t>(1, tile.rows * tile.cols * k));
  ThreadWorkspaces workspaces(stream, packs ? packed_product_memory() : 0);
  parallel_for(stream, batches * row_tiles * col_tiles, small, [&](int64_t begin, int64_t end) {
    const ThreadWorkspaces::Slice memory(workspaces);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t batch = unit / (row_tiles * col_tiles);
      const int64_t row = unit / col_tiles % row_tiles * tile.rows;
      const int64_t col = unit % col_tiles * tile.cols;
      const int64_t rows = std::min(tile.rows, m - row);
      const int64_t cols = std::min(tile.cols, n - col);
      const Matrix<Sum> part = matrix_of<Sum>(c, batch).block(row, col, rows, cols);
      if (shift || !packs || k == 0)
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < cols; ++j) *part.at(i, j) = shift ? shift[col + j] : Sum{0};
      if (k == 0) continue;
      const Matrix<T> left = matrix_of<T>(a, batch).block(row, 0, rows, k);
      const Matrix<T> right = matrix_of<T>(b, batch).block(0, col, k, cols);
      if constexpr (std::is_same_v<Sum, float>)
        if (packs) {
          packed_product(part, left, right, shift != nullptr, memory.data());
          continue;
        }
      if constexpr (std::is_same_v<T, Sum>) add_product(part, left, right);
    }
  });
}

void matmul_cpu(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                const Tensor& bias) {
  ASSERT(c.dim() == 3 && a.dim() == 3 && b.dim() == 3 && c.is_contiguous() &&
         a.shape()[2] == b.shape()[1]);
  if (c.numel() == 0) return;
  const auto of_bfloat16 = [](const Tensor& x) { return x.dtype() == DType::BFloat16; };
  if (of_bfloat16(a) && of_bfloat16(b) && of_bfloat16(c) && amx::tiles() != amx::Tiles::None)
    return amx::matmul(stream, c, a, b, bias);
  if (is_16_bit(c)) {
    const bool pairs = conv::kMultipliesPairs && of_bfloat16(a) && of_bfloat16(b) &&
                       suits_packed_product(c.shape()[1], c.shape()[2], a.shape()[2]);
    return narrow_into(c, [&](const Tensor& wide) {
      pairs ? matmul_tiles<bfloat16>(stream, wide, direct(a), direct(b), widen(bias))
            : matmul_cpu(stream, wide, widen(a), widen(b), widen(bias));
    });
  }
  visit_wide("matmul", c.dtype(),
             [&]<class T>() { matmul_tiles<T>(stream, c, direct(a), direct(b), bias); });
}

REGISTER_KERNEL(matmul, CPU, Native, matmul_cpu);

}  // namespace
}  // namespace ringgrad::cpu
