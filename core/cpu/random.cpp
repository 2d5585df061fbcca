// Random numbers on the CPU: the stream that core/random.h defines, in batches whose rounds run
// side by side.

#include <bit>
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/random_words.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/random_elements.h"

namespace ringgrad::cpu {
namespace {

struct RandomState {
  uint64_t seed;
  uint64_t offset;
  explicit RandomState(const Tensor& state)
      : seed(static_cast<uint64_t>(state.data<int64_t>()[0])),
        offset(static_cast<uint64_t>(state.data<int64_t>()[1])) {
    ASSERT(state.is_contiguous() && state.numel() == 2);
  }
};

// The number of independent Philox blocks.
constexpr int64_t kBatchBlocks = 32;
constexpr int64_t kBatch = 4 * kBatchBlocks;

// Calls body(first, n, words) for the elements [first, first + n) of a draw of `count` numbers of
// type T. Element first + i has words[i], or words 2 i and 2 i + 1 if an element takes two.
template <class T, class Body>
void for_each_batch(Stream stream, const RandomState& state, int64_t count, int64_t unit_elements,
                    Body&& body) {
  constexpr int64_t kElements = kBatch / kWordsOf<T>;
  parallel_for(stream, ceil_div(count, kElements), std::max<int64_t>(1, unit_elements / kElements),
               [&](int64_t begin, int64_t end) {
                 uint32_t words[kBatch];
                 for (int64_t batch = begin; batch < end; ++batch) {
                   const uint64_t counter =
                       state.offset + static_cast<uint64_t>(batch * kBatchBlocks);
                   random_words(state.seed, counter, kBatchBlocks, words);
                   body(batch * kElements, std::min(kElements, count - batch * kElements), words);
                 }
               });
}

void advance_random_state_cpu(Stream, const Tensor& snapshot, const Tensor& state, int64_t count) {
  const RandomState now(state);
  snapshot.data<int64_t>()[0] = static_cast<int64_t>(now.seed);
  snapshot.data<int64_t>()[1] = static_cast<int64_t>(now.offset);
  state.data<int64_t>()[1] = static_cast<int64_t>(now.offset + static_cast<uint64_t>(count));
}

void uniform_cpu(Stream stream, const Tensor& x, const Tensor& state, double low, double high) {
  ASSERT(x.is_contiguous());
  visit_floating("uniform", x.dtype(), [&]<class T>() {
    for_each_batch<T>(stream, RandomState(state), x.numel(), kUnitElements / 4,
                      [low, range = high - low, to = x.data<T>()](int64_t first, int64_t n,
                                                                  const uint32_t* words) {
                        for (int64_t i = 0; i < n; ++i)
                          to[first + i] = static_cast<T>(low + range * uniform_number<T>(words, i));
                      });
  });
}

void randint_cpu(Stream stream, const Tensor& x, const Tensor& state, int64_t low, uint64_t range) {
  ASSERT(x.is_contiguous() && range > 0);
  const RandomState now(state);
  for_each_batch<int64_t>(
      stream, now, x.numel(), kUnitElements / 4,
      [=, to = x.data<int64_t>()](int64_t first, int64_t n, const uint32_t* words) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = first + i;
          const uint64_t word = wide_word(words, i);
          const uint64_t drawn = integer_below(range, word, now.seed, now.offset, at);
          to[at] = static_cast<int64_t>(static_cast<uint64_t>(low) + drawn);
        }
      });
}

// Computes log x for x > 0 in double: x = 2^n m with m in [√½, √2), and log m = 2 artanh s for s =
// (m - 1) / (m + 1), |s| < 0.172.
template <class F>
double wide_log(F x) {
  using Bits = std::conditional_t<std::is_same_v<F, float>, int32_t, int64_t>;
  constexpr int kMantissa = std::is_same_v<F, float> ? 23 : 52;
  constexpr Bits kSqrtHalfBits = std::bit_cast<Bits>(static_cast<F>(0.70710678118654752440));
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits n = (bits - kSqrtHalfBits) >> kMantissa;
  const double m = std::bit_cast<F>(bits - (n << kMantissa));
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double series = 2.0 / 21;  // 2 + 2z/3 + 2z²/5 + …
  for (int odd = 19; odd > 0; odd -= 2) series = series * z + 2.0 / odd;
  return static_cast<double>(n) * 0.69314718055994531 + s * series;
}

struct Direction {
  double cosine;
  double sine;
};
// Returns the direction of `turn` whole turns, in [0, 1). It is computed from the nearest axis, at
// most an eighth of a turn away, by Taylor's series.
template <class F>
Direction direction(F turn) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const int32_t axis = static_cast<int32_t>(4 * turn + F(0.5));
  const double t = kTwoPi * (turn - F(0.25) * static_cast<F>(axis));
  const double z = t * t;
  double even = 1;
  double odd = 1;  // even: cos t, odd: sin t / t
  for (int n = 16; n > 0; n -= 2) {
    even = 1 - even * (z * (1.0 / (n * (n - 1))));
    odd = 1 - odd * (z * (1.0 / (n * (n + 1))));
  }
  odd *= t;
  const double along = axis & 2 ? -even : even;
  const double across = axis & 2 ? -odd : odd;
  return {axis & 1 ? -across : along, axis & 1 ? along : across};
}

// Box & Muller (1958) make elements 2 i and 2 i + 1 from a radius and an angle. These are double,
// so that machines whose last bits differ still agree in float32. The 16-bit types have float32's
// numbers, rounded.
void normal_cpu(Stream stream, const Tensor& x, const Tensor& state, double mean, double std) {
  ASSERT(x.is_contiguous());
  visit_floating("normal", x.dtype(), [&]<class T>() {
    using F = Accumulator<T>;
    for_each_batch<T>(stream, RandomState(state), x.numel(), kUnitElements / 16,
                      [=, to = x.data<T>()](int64_t first, int64_t n, const uint32_t* words) {
                        double normals[kBatch];
                        for (int64_t i = 0; i < kBatch / kWordsOf<F>; i += 2) {
                          // 1 - u lies in (0, 1], so its logarithm is finite.
                          const double radius =
                              std::sqrt(-2 * wide_log(1 - uniform_number<F>(words, i)));
                          const Direction angle = direction(uniform_number<F>(words, i + 1));
                          normals[i] = radius * angle.cosine;
                          normals[i + 1] = radius * angle.sine;
                        }
                        for (int64_t i = 0; i < n; ++i)
                          to[first + i] = static_cast<T>(mean + std * normals[i]);
                      });
  });
}

void dropout_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& state, double p) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  const uint64_t wide_threshold = dropout_threshold(p);
  if (wide_threshold > UINT32_MAX) return kernels::fill(y, 0);
  const auto threshold = static_cast<uint32_t>(wide_threshold);
  visit_floating("dropout", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A scale = p < 1 ? static_cast<A>(1 / (1 - p)) : A{0};
    for_each_batch<float>(
        stream, RandomState(state), x.numel(), kUnitElements / 4,
        [=, to = y.data<T>(), from = x.data<T>()](int64_t first, int64_t n, const uint32_t* words) {
          for (int64_t i = 0; i < n; ++i) {
            const A kept = static_cast<A>(from[first + i]) * scale;
            to[first + i] = static_cast<T>(words[i] >= threshold ? kept : A{0});
          }
        });
  });
}

REGISTER_KERNEL(advance_random_state, CPU, Native, advance_random_state_cpu);
REGISTER_KERNEL(uniform, CPU, Native, uniform_cpu);
REGISTER_KERNEL(randint, CPU, Native, randint_cpu);
REGISTER_KERNEL(normal, CPU, Native, normal_cpu);
REGISTER_KERNEL(dropout, CPU, Native, dropout_cpu);

}  // namespace
}  // namespace ringgrad::cpu
