// Random numbers: the stream that core/random.h defines, the same on the CPU and here, whatever the
// grid.
//
// Mapping: one thread per Philox block, that is, per four consecutive elements.

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/random_elements.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

constexpr int kWords = 4;  // words of a Philox block
__host__ __device__ int64_t blocks_of(int64_t count) { return (count + kWords - 1) / kWords; }

__global__ void advance_kernel(int64_t* snapshot, int64_t* state, int64_t count) {
  snapshot[0] = state[0];
  snapshot[1] = state[1];
  state[1] += count;
}

// Calls write(i, words, n) for each group of elements from i on with the random words of one block:
// n <= 4 elements of one word each, or n <= 2 elements of two words. The state is read here, on the
// device, so that a captured graph draws new numbers at each replay.
template <int kWordsEach = 1, class Write>
__device__ __forceinline__ void for_each_block(const int64_t* state, int64_t count,
                                               const Write& write) {
  constexpr int64_t kElements = kWords / kWordsEach;
  const auto seed = static_cast<uint64_t>(state[0]);
  const auto offset = static_cast<uint64_t>(state[1]);
  for (int64_t b = thread_number(); b < blocks_of(count * kWordsEach); b += thread_count()) {
    const PhiloxBlock block = philox(seed, offset + static_cast<uint64_t>(b));
    write(b * kElements, block.word, static_cast<int>(min(count - b * kElements, kElements)));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    uniform_kernel(int64_t count, T* x, const int64_t* state, double low, double range, int bits) {
  for_each_block<kWordsOf<T>>(state, count, [=](int64_t i, const uint32_t* words, int n) {
    for (int w = 0; w < n; ++w) {
      if constexpr (kWordsOf<T> == 2)
        x[i + w] = low + range * uniform_number<T>(words, w);
      else
        x[i + w] = narrow<T>(low + range * uniform_from(words[w], bits));
    }
  });
}

__global__ void __launch_bounds__(kThreads)
    randint_kernel(int64_t count, int64_t* x, const int64_t* state, int64_t low, uint64_t range) {
  const auto seed = static_cast<uint64_t>(state[0]);
  const auto offset = static_cast<uint64_t>(state[1]);
  for_each_block<2>(state, count, [=](int64_t i, const uint32_t* words, int n) {
    for (int w = 0; w < n; ++w) {
      const uint64_t drawn = integer_below(range, wide_word(words, w), seed, offset, i + w);
      x[i + w] = static_cast<int64_t>(static_cast<uint64_t>(low) + drawn);
    }
  });
}

// Box & Muller (1958), in double and from the nearest axis as on the CPU. Both give the same number
// after rounding to float32.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_kernel(int64_t count, T* x, const int64_t* state, double mean, double std) {
  constexpr double kTwoPi = 6.283185307179586476925;
  using F = Compute<T>;
  for_each_block<kWordsOf<F>>(state, count, [=](int64_t i, const uint32_t* words, int n) {
    for (int w = 0; w < n; w += 2) {
      const double radius =
          std::sqrt(-2 * std::log(1 - static_cast<double>(uniform_number<F>(words, w))));
      const F turn = uniform_number<F>(words, w + 1);
      const int axis = static_cast<int>(4 * turn + F(0.5));
      const double angle = kTwoPi * (turn - F(0.25) * static_cast<F>(axis));
      const double along = std * radius * std::cos(angle) * (axis & 2 ? -1 : 1);
      const double across = std * radius * std::sin(angle) * (axis & 2 ? -1 : 1);
      x[i + w] = narrow<T>(mean + (axis & 1 ? -across : along));
      if (w + 1 < n) x[i + w + 1] = narrow<T>(mean + (axis & 1 ? along : across));
    }
  });
}

// Keeps an element if its 32 random bits, as an integer, reach the threshold.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(int64_t count, T* y, const T* x, const int64_t* state, uint32_t threshold,
                   Compute<T> scale) {
  for_each_block(state, count, [=](int64_t i, const uint32_t* words, int n) {
    for (int w = 0; w < n; ++w)
      y[i + w] = narrow<T>(words[w] >= threshold ? widen(x[i + w]) * scale : Compute<T>(0));
  });
}

void advance_random_state_cuda(Stream stream, const Tensor& snapshot, const Tensor& state,
                               int64_t count) {
  launch(advance_kernel, 1, 1, 0, stream, snapshot.data<int64_t>(), state.data<int64_t>(), count);
}

void uniform_cuda(Stream stream, const Tensor& x, const Tensor& state, double low, double high) {
  ASSERT(x.is_contiguous());
  visit_floating("uniform", x.dtype(), [&]<class T>() {
    launch_elements(stream, blocks_of(x.numel() * kWordsOf<T>), uniform_kernel<Element<T>>,
                    x.numel(), device_data<T>(x), state.data<int64_t>(), low, high - low,
                    kUniformBits<T>);
  });
}

void randint_cuda(Stream stream, const Tensor& x, const Tensor& state, int64_t low,
                  uint64_t range) {
  ASSERT(x.is_contiguous() && range > 0);
  launch_elements(stream, blocks_of(2 * x.numel()), randint_kernel, x.numel(), x.data<int64_t>(),
                  state.data<int64_t>(), low, range);
}

void normal_cuda(Stream stream, const Tensor& x, const Tensor& state, double mean, double std) {
  ASSERT(x.is_contiguous());
  visit_floating("normal", x.dtype(), [&]<class T>() {
    launch_elements(stream, blocks_of(x.numel() * kWordsOf<T>), normal_kernel<Element<T>>,
                    x.numel(), device_data<T>(x), state.data<int64_t>(), mean, std);
  });
}

void dropout_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& state, double p) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  const uint64_t wide_threshold = dropout_threshold(p);
  if (wide_threshold > UINT32_MAX) return kernels::fill(y, 0);
  const auto threshold = static_cast<uint32_t>(wide_threshold);
  visit_floating("dropout", x.dtype(), [&]<class T>() {
    using A = ComputeOf<T>;
    const A scale = p < 1 ? static_cast<A>(1 / (1 - p)) : A(0);
    launch_elements(stream, blocks_of(x.numel()), dropout_kernel<Element<T>>, x.numel(),
                    device_data<T>(y), device_data<T>(x), state.data<int64_t>(), threshold, scale);
  });
}

REGISTER_KERNEL(advance_random_state, CUDA, Native, advance_random_state_cuda);
REGISTER_KERNEL(uniform, CUDA, Native, uniform_cuda);
REGISTER_KERNEL(randint, CUDA, Native, randint_cuda);
REGISTER_KERNEL(normal, CUDA, Native, normal_cuda);
REGISTER_KERNEL(dropout, CUDA, Native, dropout_cuda);

}  // namespace
}  // namespace ringgrad::cuda
