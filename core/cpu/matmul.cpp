// The matrix product on the CPU: tiles of bfloat16 where the processor has them, panels of float32, and for float64 and
// thin matrices a single-threaded GEMM on tiles of c, shared out by parallel_for.
#include "ringgrad/core/cpu/amx/matmul.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/eigen_gemm.h"
#include "ringgrad/core/cpu/packed_product.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

// x [B, R, C] whose rows, or columns, are contiguous. The stride of a dimension of size 1 means nothing.
bool has_contiguous_rows(const Tensor& x) {
  const int64_t rows = x.shape()[1], cols = x.shape()[2];
  return (cols == 1 || x.strides()[2] == 1) && (rows == 1 || x.strides()[1] >= cols);
}
bool has_contiguous_cols(const Tensor& x) {
  const int64_t rows = x.shape()[1], cols = x.shape()[2];
  return (rows == 1 || x.strides()[1] == 1) && (cols == 1 || x.strides()[2] >= rows);
}
// x itself, or a copy where no stride is 1 (a slice with steps) or rows repeat (an expanded vector).
Tensor direct(const Tensor& x) { return has_contiguous_rows(x) || has_contiguous_cols(x) ? x : as_contiguous(x); }

template <class T>
Matrix<T> matrix_of(const Tensor& x, int64_t batch) {
  const int64_t rows = x.shape()[1], cols = x.shape()[2];
  T* const data = x.data<T>() + batch * x.strides()[0];
  if (has_contiguous_rows(x)) return {data, rows, cols, rows == 1 ? cols : x.strides()[1]};
  return {data, rows, cols, cols == 1 ? rows : x.strides()[2], true};
}

struct Tiles {
  int64_t rows, cols;
};

// How c [m, n] is cut: by the shape alone, so that each element is summed in the same order on any number of threads.
// A tile is worth 50 to 200 µs of one core, more where six others remain for other cores, or 1/64 of a large product,
// and is as square as it can be, because each one packs its rows of a and its columns of b anew.
Tiles choose_tiles(int64_t batches, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLeast = int64_t{1} << 22, kMost = int64_t{1} << 24, kSmallest = 32;
  const int64_t all = batches * m * n * k, work = std::max(std::clamp(all / 6, kLeast, kMost), all / 64);
  const auto halved = [](int64_t size) { return ceil_div(size, 8) * 4; };  // a multiple of 4
  Tiles tile{m, n};
  while (tile.rows * tile.cols * k > work) {
    int64_t& larger = tile.rows >= tile.cols ? tile.rows : tile.cols;
    if (larger <= kSmallest) break;
    larger = halved(larger);
  }
  return tile;
}

template <class T>
void matmul_tiles(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t batches = c.shape()[0], m = c.shape()[1], n = c.shape()[2], k = a.shape()[2];
  const Tiles tile = choose_tiles(batches, m, n, k);
  const int64_t row_tiles = ceil_div(m, tile.rows), col_tiles = ceil_div(n, tile.cols);
  const T* const shift = bias.defined() ? bias.data<T>() : nullptr;
  const int64_t small = ceil_div(1 << 19, std::max<int64_t>(1, tile.rows * tile.cols * k));  // of many small products
  parallel_for(stream, batches * row_tiles * col_tiles, small, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t batch = unit / (row_tiles * col_tiles);
      const int64_t row = unit / col_tiles % row_tiles * tile.rows, col = unit % col_tiles * tile.cols;
      const int64_t rows = std::min(tile.rows, m - row), cols = std::min(tile.cols, n - col);
      const Matrix<T> part = matrix_of<T>(c, batch).block(row, col, rows, cols);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) *part.at(i, j) = shift ? shift[col + j] : T{0};
      if (k > 0)
        add_product(part, matrix_of<T>(a, batch).block(row, 0, rows, k), matrix_of<T>(b, batch).block(0, col, k, cols));
    }
  });
}

void matmul_cpu(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  ASSERT(c.dim() == 3 && a.dim() == 3 && b.dim() == 3 && c.is_contiguous() && a.shape()[2] == b.shape()[1]);
  if (c.numel() == 0) return;
  const auto of_bfloat16 = [](const Tensor& x) { return x.dtype() == DType::BFloat16; };
  if (of_bfloat16(a) && of_bfloat16(b) && of_bfloat16(c) && amx::tiles() != amx::Tiles::None)
    return amx::matmul(stream, c, a, b, bias);
  if (is_16_bit(c))
    return narrow_into(c, [&](const Tensor& wide) { matmul_cpu(stream, wide, widen(a), widen(b), widen(bias)); });
  if (c.dtype() == DType::Float64)
    matmul_tiles<double>(stream, c, direct(a), direct(b), bias);
  else if (suits_packed_product(c, a.shape()[2]))
    packed_product(stream, c, a, b, bias);
  else
    matmul_tiles<float>(stream, c, direct(a), direct(b), bias);
}

REGISTER_KERNEL(matmul, DeviceType::CPU, Provider::Native, matmul_cpu);

}  // namespace
}  // namespace ringgrad::cpu
