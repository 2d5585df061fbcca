// y = Σ x, float32, step by step (after Harris, "Optimizing Parallel Reduction in CUDA", 2007). The
// last step is kernels::sum (sum.cu).
//
// Mapping of the trees: a block adds 256 elements. Its sum is an element for the next launch, until
// one is left. A tree in shared memory has eight levels. With 16 threads for brevity, threads t
// add:
//
//     neighbours first   t:  0 ← 1    2 ← 3    4 ← 5 …      then 0 ← 2,  4 ← 6 …      then 0 ← 4 …
//     halves first       t:  0 ← 8,   1 ← 9,   2 ← 10 …     then 0 ← 4,  1 ← 5 …      then 0 ← 2 …
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/ladders/problem.h"

namespace ringgrad::cuda {
namespace {

// Each of the n additions waits for the one before it, because they have one address.
__global__ void __launch_bounds__(kThreads) atomic_kernel(int64_t n, float* y, const float* x) {
  for (int64_t i = thread_number(); i < n; i += thread_count()) atomicAdd(y, x[i]);
}

// Neighbours first: in each level the first threads use places 2, 4, 8 … apart, which share banks.
// Halves first: they use adjacent places.
template <bool kNeighboursFirst>
__global__ void __launch_bounds__(kThreads) tree_kernel(int64_t n, float* y, const float* x) {
  __shared__ float values[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t i = int64_t{blockIdx.x} * kThreads + t;
  values[t] = i < n ? x[i] : 0;
  for (int level = 1; level < kThreads; level *= 2) {
    __syncthreads();
    const int adders = kThreads / 2 / level;
    const int apart = kNeighboursFirst ? level : adders;
    const int to = kNeighboursFirst ? 2 * level * t : t;
    if (t < adders) values[to] += values[to + apart];
  }
  if (t == 0) y[blockIdx.x] = values[0];
}

// Each thread adds many elements in registers, so the device is filled once and most additions need
// no other thread. Then lanes exchange sums by shuffles, and only warps use shared memory.
__global__ void __launch_bounds__(kThreads) shuffle_kernel(int64_t n, float* y, const float* x) {
  float total = 0;
  for (int64_t i = thread_number(); i < n; i += thread_count()) total += x[i];
  total = block_reduce(total, Sum{}, 0.0f);
  if (threadIdx.x == 0) y[blockIdx.x] = total;
}

using TreeKernel = void (*)(int64_t, float*, const float*);

// Launches until one element is left. blocks(n) is the number of blocks for n elements.
template <class Blocks>
void reduce_by(TreeKernel kernel, Stream stream, Blocks blocks, const Tensor& y, Tensor x) {
  for (bool more = true; more;) {
    const unsigned parts = blocks(x.numel());
    more = parts > 1;
    const Tensor sums = more ? empty({parts}, x.options()) : y;
    launch(kernel, parts, kThreads, 0, stream, x.numel(), sums.data<float>(), x.data<float>());
    x = sums;
  }
}

void run(int step, Stream stream, const Tensor& y, const Tensor& x) {
  const auto by_256 = [](int64_t n) { return blocks_for(n, kThreads); };
  const auto one_wave = [=](int64_t n) {
    return n <= 8 * kThreads ? 1 : grid_stride_blocks(stream, n, 8 * kThreads);
  };
  if (step == 0) {
    kernels::fill(y, 0);
    launch_elements(stream, x.numel(), atomic_kernel, x.numel(), y.data<float>(), x.data<float>());
  } else if (step == 1) {
    reduce_by(tree_kernel<true>, stream, by_256, y, x);
  } else if (step == 2) {
    reduce_by(tree_kernel<false>, stream, by_256, y, x);
  } else if (step == 3) {
    reduce_by(shuffle_kernel, stream, one_wave, y, x);
  } else {
    kernels::sum(y, x, 1);
  }
}

LadderProblem problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const Tensor x = noise({size[0]}, dtype, device);
  const Tensor y = empty({1}, {dtype, device});
  return make_problem(
      static_cast<double>(size[0]), {x}, {y}, [=](int) { return dtype == DType::Float32; },
      [=](int step, Stream stream) { run(step, stream, y, x); });
}

[[maybe_unused]] const bool registered = register_ladder(
    {.kernel = "sum",
     .computes = "y = the sum of x [n]",
     .steps =
         {{"atomic", "every element is added to one address by atomicAdd"},
          {"neighbours first",
           "a tree in shared memory per block, which adds neighbours, then neighbours of those"},
          {"halves first",
           "a tree which adds the second half to the first, so that no two threads share a bank"},
          {"shuffles",
           "many elements per thread in registers, then lanes exchange theirs by shuffles"},
          {"sum", "kernels::sum, which also takes several sums, any strides and types"}},
     .sizes = {"n"},
     .large = {int64_t{1} << 28},
     .small = {int64_t{1} << 14},
     .problem = problem});

}  // namespace
}  // namespace ringgrad::cuda
