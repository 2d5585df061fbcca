// y = x, and y = xᵀ: step by step, what a warp must do for fast memory access. A kernel that
// computes little can be no faster than these. kernels::copy leaves the first to the device's copy
// engine.
//
// A warp's 32 threads access memory with one instruction. Global memory delivers sectors of 32
// bytes. So 32 neighbouring floats are 4 sectors, and 32 distant floats are 32 sectors, of each of
// which 4 bytes are used. Shared memory has 32 banks, word i in bank i % 32, and each bank delivers
// one word at a time.
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/ladders/problem.h"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

// ---- copy ---------------------------------------------------------------------------------------

constexpr int kRun = 32;

// A thread takes 32 neighbours, one after another, as a CPU's thread would. At any time a warp
// accesses 32 distant places.
template <class T>
__global__ void __launch_bounds__(kThreads) runs_kernel(int64_t n, T* y, const T* x) {
  for (int64_t first = thread_number() * kRun; first < n; first += thread_count() * kRun)
    for (int64_t i = first; i < min(first + kRun, n); ++i) y[i] = x[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads) neighbours_kernel(int64_t n, T* y, const T* x) {
  for (int64_t i = thread_number(); i < n; i += thread_count()) y[i] = x[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads) vectors_kernel(int64_t n, T* y, const T* x) {
  constexpr int kSize = kVectorSize<T>;
  for (int64_t v = thread_number(); v < n / kSize; v += thread_count())
    store_vector<kSize>(y, v, load_vector<kSize>(x, v));
}

LadderProblem copy_problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const int64_t n = size[0];
  const Tensor x = noise({n}, dtype, device);
  const Tensor y = empty_like(x);
  return make_problem(
      0, {x}, {y}, [=](int step) { return step < 2 || n % kVectorBytes == 0; },
      [=](int step, Stream stream) {
        visit_floating("copy", dtype, [&]<class T>() {
          using D = Element<T>;
          const auto kernel = step == 0   ? runs_kernel<D>
                              : step == 1 ? neighbours_kernel<D>
                                          : vectors_kernel<D>;
          const int64_t threads = step == 0 ? n / kRun + 1 : step == 1 ? n : n / kVectorSize<T>;
          launch_elements(stream, threads, kernel, n, device_data<T>(y), device_data<T>(x));
        });
      });
}

[[maybe_unused]] const bool copy_registered =
    register_ladder({.kernel = "copy",
                     .computes = "y [n] = x [n]",
                     .steps = {{"runs", "each thread copies 32 neighbours, one after another"},
                               {"neighbours", "neighbouring threads copy neighbours"},
                               {"vectorised", "and each 16 bytes at once"}},
                     .sizes = {"n"},
                     .large = {int64_t{1} << 28},
                     .small = {int64_t{1} << 14},
                     .problem = copy_problem});

// ---- transpose ----------------------------------------------------------------------------------
//
// Mapping: 32 × 8 threads copy 32 × 32 elements, four rows each.
constexpr int kSide = 32;
constexpr int kRows = 8;

// Reads rows, and so writes columns.
template <class T>
__global__ void __launch_bounds__(kSide* kRows)
    columns_kernel(int64_t R, int64_t C, T* y, const T* x) {
  const int64_t c = int64_t{blockIdx.x} * kSide + threadIdx.x;
  for (int64_t r = int64_t{blockIdx.y} * kSide + threadIdx.y;
       r < min(R, (int64_t{blockIdx.y} + 1) * kSide); r += kRows)
    if (c < C) y[c * R + r] = x[r * C + c];
}

// Reads rows and writes rows, through a tile in shared memory that is written by rows and read by
// columns. With rows of 32 floats a column lies in one bank; with rows of 33 it lies in 32 banks:
//
//                 32 a row                33 a row
//     row 0    0  1  2 … 31            0  1  2 … 31  0
//     row 1    0  1  2 … 31            1  2  3 …  0  1       the bank of each word
//     row 2    0  1  2 … 31            2  3  4 …  1  2
template <class T, int kPitch>
__global__ void __launch_bounds__(kSide* kRows)
    tile_kernel(int64_t R, int64_t C, T* y, const T* x) {
  __shared__ Compute<T> tile[kSide][kPitch];
  const int tx = static_cast<int>(threadIdx.x);
  const int ty = static_cast<int>(threadIdx.y);
  const int64_t r0 = int64_t{blockIdx.y} * kSide;
  const int64_t c0 = int64_t{blockIdx.x} * kSide;
  for (int i = ty; i < kSide; i += kRows)
    if (r0 + i < R && c0 + tx < C) tile[i][tx] = widen(x[(r0 + i) * C + c0 + tx]);
  __syncthreads();
  for (int i = ty; i < kSide; i += kRows)
    if (c0 + i < C && r0 + tx < R) y[(c0 + i) * R + r0 + tx] = narrow<T>(tile[tx][i]);
}

LadderProblem transpose_problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const int64_t R = size[0];
  const int64_t C = size[1];
  const Tensor x = noise({R, C}, dtype, device);
  const Tensor y = empty({C, R}, {dtype, device});
  return make_problem(
      0, {x}, {y}, [](int) { return true; },
      [=](int step, Stream stream) {
        visit_floating("transpose", dtype, [&]<class T>() {
          using D = Element<T>;
          const auto kernel = step == 0   ? columns_kernel<D>
                              : step == 1 ? tile_kernel<D, kSide>
                                          : tile_kernel<D, kSide + 1>;
          launch(kernel, dim3(blocks_for(C, kSide), blocks_for(R, kSide)), dim3(kSide, kRows), 0,
                 stream, R, C, device_data<T>(y), device_data<T>(x));
        });
      });
}

[[maybe_unused]] const bool transpose_registered = register_ladder(
    {.kernel = "transpose",
     .computes = "y [columns, rows] = x [rows, columns] transposed",
     .steps = {{"columns", "neighbouring threads read a row, and write a column"},
               {"tile",
                "32 × 32 elements at a time by way of shared memory: rows are read and written"},
               {"padded tile",
                "a row of the tile has 33 elements, so that a column lies in 32 banks"}},
     .sizes = {"rows", "columns"},
     .large = {16384, 16384},
     .small = {128, 128},
     .problem = transpose_problem});

}  // namespace
}  // namespace ringgrad::cuda
