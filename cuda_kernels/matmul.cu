// c[b] = a[b] · b[b] + bias, in float32 or float64: the ladder from the obvious kernel to the fast
// one (after Boehm, "How to Optimize a CUDA Matmul Kernel", 2022). For the 16-bit types it
// continues in ladders/matmul_fragments.cu, matmul_tensor_cores.cu, which any GPU runs, and
// ladders/matmul_warp_tiles.cu. On Hopper it goes on in hopper/matmul_warpgroup.cu,
// matmul_producer.cu, and ends in hopper/matmul.cu.
//
// Mapping, in all of them: a block computes one tile of c in one batch, and K is a loop.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/ladders/problem.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

// ---- naive and coalesced: 32 × 32 threads, one element of c each --------------------------------
//
// Each element of a is read N times and each of b M times, all from device memory. With
// neighbouring threads on neighbouring rows (naive), a warp's 32 reads of a access 32 different
// lines. With neighbouring threads on neighbouring columns they are one address, and its reads of b
// and writes of c are one line.
constexpr int kTile = 32;
constexpr int kTileThreads = kTile * kTile;

template <class T, bool kCoalesced>
__global__ void __launch_bounds__(kTileThreads)
    one_element_kernel(GemmShape shape, MatrixOperand<T> a, MatrixOperand<T> b, MatrixStore<T> c) {
  const GemmTile tile(shape, kTile, kTile, kTile);
  const int tx = static_cast<int>(threadIdx.x);
  const int ty = static_cast<int>(threadIdx.y);
  const int64_t m = tile.m0 + (kCoalesced ? ty : tx);
  const int64_t n = tile.n0 + (kCoalesced ? tx : ty);
  if (m >= shape.M || n >= shape.N) return;
  const auto a_row = a.row(tile.batch, m);
  const auto b_column = b.row(tile.batch, n);
  Compute<T> total = 0;
  for (int64_t k = 0; k < shape.K; ++k)
    total += widen(a_row[a.term(k)]) * widen(b_column[b.term(k)]);
  *c.at(tile.batch, 0, m, n) = c.result(tile.batch, n, total);
}

// ---- shared tile: the same threads, which first bring 32 × 32 tiles of a and b into shared memory
//
// Each element is then read from device memory once per 32 uses.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    shared_tile_kernel(GemmShape shape, MatrixOperand<T> a, MatrixOperand<T> b, MatrixStore<T> c) {
  using A = Compute<T>;
  // [m][k], [n][k]; + 1 puts a column into different banks.
  __shared__ A a_tile[kTile][kTile + 1];
  __shared__ A b_tile[kTile][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x);
  const int ty = static_cast<int>(threadIdx.y);
  const GemmTile tile(shape, kTile, kTile, kTile);
  const int64_t m = tile.m0 + ty;
  const int64_t n = tile.n0 + tx;
  const int64_t b_row = tile.n0 + ty;  // the row of b_tile that this thread loads
  const T* a_data = a.data + tile.batch * a.batch_stride;
  const T* b_data = b.data + tile.batch * b.batch_stride;
  A total = 0;
  for (int64_t k0 = 0; k0 < shape.K; k0 += kTile) {
    const int64_t k = k0 + tx;
    a_tile[ty][tx] =
        m < shape.M && k < shape.K ? widen(a_data[m * a.long_stride + k * a.k_stride]) : A(0);
    b_tile[ty][tx] = b_row < shape.N && k < shape.K
                         ? widen(b_data[b_row * b.long_stride + k * b.k_stride])
                         : A(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) total += a_tile[ty][i] * b_tile[tx][i];
    __syncthreads();  // before the next tiles overwrite these
  }
  if (m < shape.M && n < shape.N) *c.at(tile.batch, 0, m, n) = c.result(tile.batch, n, total);
}

// ---- register tile: 16 × 16 threads compute 128 × 128 elements, 8 × 8 each ----------------------
//
// A thread reads 8 + 8 numbers from shared memory for 64 multiplications. Its rows are 4
// neighbouring ones in each half of the tile, so a warp reads shared memory without bank conflicts.
constexpr int kSide = 8;          // elements per thread in each direction
constexpr int kHalf = kSide / 2;  // neighbouring ones
constexpr int kThreadsSide = 16;
constexpr int kBlockThreads = kThreadsSide * kThreadsSide;
constexpr int kBlockTile = kSide * kThreadsSide;
constexpr int kDepth = 8;  // a tile's size in k

// Loads elements [first, first + 128) × [k0, k0 + 8) of an operand into tile[k][·]; elements
// outside become 0. Each of the 256 threads moves four neighbours in memory: along the long
// dimension or along k, whichever has stride 1.
template <bool kVector, class T>
__device__ __forceinline__ void load_tile(Compute<T> (&tile)[kDepth][kBlockTile],
                                          const MatrixOperand<T>& from, const T* data,
                                          int64_t first, int64_t size, int64_t k0, int64_t K) {
  const int t = static_cast<int>(threadIdx.x);
  const bool along_k = from.k_stride == 1;
  const int i = along_k ? t / 2 : t % 32 * 4;
  const int k = along_k ? t % 2 * 4 : t / 32;
  const T* source = data + (first + i) * from.long_stride + (k0 + k) * from.k_stride;
  T values[4];
  if (kVector && first + kBlockTile <= size && k0 + kDepth <= K) {
    const auto vector = load_vector<4>(source, 0);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = vector.element[j];
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t element = first + i + (along_k ? 0 : j);
      const int64_t at_k = k0 + k + (along_k ? j : 0);
      values[j] = element < size && at_k < K
                      ? source[j * (along_k ? from.k_stride : from.long_stride)]
                      : T(0);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) tile[along_k ? k + j : k][along_k ? i : i + j] = widen(values[j]);
}

// Element r of a thread's eight is row (or column) element_at(side, r) of the tile.
__device__ __forceinline__ int element_at(int side, int r) {
  return r / kHalf * (kBlockTile / 2) + side * kHalf + r % kHalf;
}

template <class T, bool kVector>
__global__ void __launch_bounds__(kBlockThreads)
    register_tile_kernel(GemmShape shape, MatrixOperand<T> a, MatrixOperand<T> b,
                         MatrixStore<T> c) {
  using A = Compute<T>;
  __shared__ A a_tile[kDepth][kBlockTile];
  __shared__ A b_tile[kDepth][kBlockTile];
  const int tx = static_cast<int>(threadIdx.x) % kThreadsSide;
  const int ty = static_cast<int>(threadIdx.x) / kThreadsSide;
  const GemmTile tile(shape, kBlockTile, kBlockTile, kDepth);
  const T* a_data = a.data + tile.batch * a.batch_stride;
  const T* b_data = b.data + tile.batch * b.batch_stride;
  A total[kSide][kSide] = {};
  for (int64_t k0 = 0; k0 < shape.K; k0 += kDepth) {
    load_tile<kVector>(a_tile, a, a_data, tile.m0, shape.M, k0, shape.K);
    load_tile<kVector>(b_tile, b, b_data, tile.n0, shape.N, k0, shape.K);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      A row[kSide];
      A column[kSide];
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
        row[r] = a_tile[k][element_at(ty, r)];
        column[r] = b_tile[k][element_at(tx, r)];
      }
#pragma unroll
      for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j) total[i][j] += row[i] * column[j];
    }
    __syncthreads();  // before the next tiles overwrite these
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int64_t m = tile.m0 + element_at(ty, i);
    if (m >= shape.M) continue;
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int64_t n = tile.n0 + element_at(tx, j);
      if (n < shape.N) *c.at(tile.batch, 0, m, n) = c.result(tile.batch, n, total[i][j]);
    }
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <class T>
void run(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
         const Tensor& bias) {
  using D = Element<T>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  const bool large_tile = step == MatmulStep::RegisterTile || step == MatmulStep::Vectorised;
  const int tile = large_tile ? kBlockTile : kTile;
  const dim3 block = large_tile ? dim3(kBlockThreads) : dim3(kTile, kTile);
  const auto kernel = step == MatmulStep::Naive          ? one_element_kernel<D, false>
                      : step == MatmulStep::Coalesced    ? one_element_kernel<D, true>
                      : step == MatmulStep::SharedTile   ? shared_tile_kernel<D>
                      : step == MatmulStep::RegisterTile ? register_tile_kernel<D, false>
                                                         : register_tile_kernel<D, true>;
  launch(kernel, gemm_blocks(shape, tile, tile), block, 0, stream, shape, left_operand<T>(a),
         right_operand<T>(b),
         MatrixStore<D>{device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

constexpr LadderStep kSteps[] = {
    {"naive", "one thread per element of c; neighbouring threads on neighbouring rows"},
    {"coalesced", "neighbouring threads on neighbouring columns"},
    {"shared tile", "tiles of a and b in shared memory, read 32 times each"},
    {"register tile", "8 × 8 elements of c per thread, in registers"},
    {"vectorised", "and 16 bytes per load; float32"},
    {"fragments",
     "tensor cores: warps multiply 16 × 16 by 16 × 8, gathered word by word from shared memory"},
    {"ldmatrix",
     "fragments by one instruction for four 8 × 8 matrices, transposed on the way where needed"},
    {"padded rows",
     "16 bytes behind each row of shared memory, so that eight rows lie in different banks"},
    {"stages", "cp.async brings the next two slices to shared memory while a third is multiplied"},
    {"tensor cores",
     "tiles of 128 × 128 where enough of them remain, any strides and sizes: what matmul uses"},
    {"warp tiles", "64 × 64 for each warp, a swizzle instead of padding, fragments loaded ahead"},
    {"warpgroup", "Hopper: 128 threads multiply 64 × 128 from shared memory; TMA copies to it"},
    {"producer", "a warpgroup that copies, and two that multiply 64 × 256 each; four stages"},
    {"clusters", "two blocks share b: each copies one half of it to both"},
    {"hopper",
     "blocks that stay, results by TMA, any layout, splits of K: what matmul uses on Hopper"},
};
static_assert(std::size(kSteps) == static_cast<size_t>(MatmulStep::Hopper) + 1);

LadderProblem problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const int64_t n = size[0];
  const Tensor a = noise({1, n, n}, dtype, device);
  const Tensor b = noise({1, n, n}, dtype, device);
  const Tensor c = empty_like(a);
  const double flop =
      2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  return make_problem(
      flop, {a, b}, {c}, [=](int step) { return supports(static_cast<MatmulStep>(step), c, a, b); },
      [=](int step, Stream stream) { matmul(static_cast<MatmulStep>(step), stream, c, a, b, {}); });
}

[[maybe_unused]] const bool registered =
    register_ladder({.kernel = "matmul",
                     .computes = "c [n, n] = a [n, n] · b [n, n]",
                     .steps = {std::begin(kSteps), std::end(kSteps)},
                     .sizes = {"n"},
                     .large = {4096},
                     .small = {256},
                     .problem = problem});

MatmulStep fastest(const Tensor& c, const Tensor& a, const Tensor& b) {
  for (const MatmulStep step :
       {MatmulStep::Hopper, MatmulStep::TensorCores, MatmulStep::Vectorised})
    if (supports(step, c, a, b)) return step;
  return MatmulStep::RegisterTile;
}

// Every fast step needs a stride of 1 in one of the two dimensions. Other operands are copied
// first.
Tensor direct(const Tensor& x) {
  return x.strides()[1] == 1 || x.strides()[2] == 1 ? x : as_contiguous(x);
}

void matmul_cuda(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                 const Tensor& bias) {
  ASSERT(c.is_contiguous() && c.dim() == 3 && a.shape()[2] == b.shape()[1]);
  const Tensor left = direct(a);
  const Tensor right = direct(b);
  matmul(fastest(c, left, right), stream, c, left, right, bias);
}

REGISTER_KERNEL(matmul, CUDA, Native, matmul_cuda);

}  // namespace

const char* name(MatmulStep step) { return kSteps[static_cast<int>(step)].name; }

bool supports(MatmulStep step, const Tensor& c, const Tensor& a, const Tensor& b) {
  switch (step) {
    case MatmulStep::Hopper: return hopper_supports(c, a, b);
    case MatmulStep::Clusters: return producer_supports(2, c, a, b);
    case MatmulStep::Producer: return producer_supports(1, c, a, b);
    case MatmulStep::Warpgroup: return warpgroups_support(c, a, b);
    case MatmulStep::WarpTiles: return warp_tiles_support(c, a, b);
    case MatmulStep::TensorCores: return tensor_cores_support(c, a, b);
    default: break;
  }
  if (step > MatmulStep::Vectorised) return fragments_support(c, a, b);
  if (step != MatmulStep::Vectorised) return true;
  return c.dtype() == DType::Float32 && loads_vectors<4>(left_operand<float>(a)) &&
         loads_vectors<4>(right_operand<float>(b));
}

void matmul(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
            const Tensor& bias) {
  if (c.numel() == 0) return;
  switch (step) {
    case MatmulStep::Hopper: return matmul_hopper(stream, c, a, b, bias);
    case MatmulStep::Clusters: return matmul_producer(2, stream, c, a, b, bias);
    case MatmulStep::Producer: return matmul_producer(1, stream, c, a, b, bias);
    case MatmulStep::Warpgroup: return matmul_warpgroup(stream, c, a, b, bias);
    case MatmulStep::WarpTiles: return matmul_warp_tiles(stream, c, a, b, bias);
    case MatmulStep::TensorCores: return matmul_tensor_cores(stream, c, a, b, bias);
    default: break;
  }
  if (step > MatmulStep::Vectorised) return matmul_fragments(step, stream, c, a, b, bias);
  visit_floating("matmul", c.dtype(), [&]<class T>() { run<T>(step, stream, c, a, b, bias); });
}

}  // namespace ringgrad::cuda
