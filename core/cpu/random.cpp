// Random numbers on the CPU: the stream that core/random.h defines, in batches whose rounds run side by side.

#include <bit>
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

struct RandomState {
  uint64_t seed, offset;
  explicit RandomState(const Tensor& state)
      : seed(static_cast<uint64_t>(state.data<int64_t>()[0])), offset(static_cast<uint64_t>(state.data<int64_t>()[1])) {
    ASSERT(state.is_contiguous() && state.numel() == 2);
  }
};

constexpr int64_t kBatchBlocks = 32;  // independent Philox blocks: more than 16, so that g++ makes vectors of them
constexpr int64_t kBatch = 4 * kBatchBlocks;

// body(first, n, words) for the elements [first, first + n) of a draw of `count`: element first + i has words[i].
template <class Body>
void for_each_batch(Stream stream, const RandomState& state, int64_t count, int64_t unit_elements, Body&& body) {
  parallel_for(stream, ceil_div(count, kBatch), std::max<int64_t>(1, unit_elements / kBatch),
               [&](int64_t begin, int64_t end) {
                 uint32_t words[kBatch];
                 for (int64_t batch = begin; batch < end; ++batch) {
                   const uint64_t counter = state.offset + static_cast<uint64_t>(batch * kBatchBlocks);
                   for (int64_t b = 0; b < kBatchBlocks; ++b) {
                     const PhiloxBlock block = philox(state.seed, counter + static_cast<uint64_t>(b));
                     for (int w = 0; w < 4; ++w) words[4 * b + w] = block.word[w];
                   }
                   body(batch * kBatch, std::min(kBatch, count - batch * kBatch), words);
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
    for_each_batch(stream, RandomState(state), x.numel(), kUnitElements / 4,
                   [low, range = high - low, to = x.data<T>()](int64_t first, int64_t n, const uint32_t* words) {
                     for (int64_t i = 0; i < n; ++i)
                       to[first + i] = static_cast<T>(low + range * uniform_from(words[i], kUniformBits<T>));
                   });
  });
}

// log x of a float x > 0, in double: x = 2^n m, m in [√½, √2), and log m = 2 artanh s for s = (m - 1) / (m + 1), |s| <
// 0.172.
inline double wide_log(float x) {
  constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
  const int32_t bits = std::bit_cast<int32_t>(x), n = (bits - kSqrtHalfBits) >> 23;
  const double m = std::bit_cast<float>(bits - (n << 23)), s = (m - 1) / (m + 1), z = s * s;
  double series = 2.0 / 21;  // 2 + 2z/3 + 2z²/5 + …
  for (int odd = 19; odd > 0; odd -= 2) series = series * z + 2.0 / odd;
  return n * 0.69314718055994531 + s * series;
}

struct Direction {
  double cosine, sine;
};
// Of `turn` whole turns, in [0, 1]: an eighth of one to either side of the nearest axis, by Taylor's series.
inline Direction direction(float turn) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const int32_t axis = static_cast<int32_t>(4 * turn + 0.5f);
  const double t = kTwoPi * (turn - 0.25f * static_cast<float>(axis)), z = t * t;
  double even = 1, odd = 1;  // cos t, and sin t / t
  for (int n = 16; n > 0; n -= 2) {
    even = 1 - even * (z * (1.0 / (n * (n - 1))));
    odd = 1 - odd * (z * (1.0 / (n * (n + 1))));
  }
  odd *= t;
  const double along = axis & 2 ? -even : even, across = axis & 2 ? -odd : odd;
  return {axis & 1 ? -across : along, axis & 1 ? along : across};
}

// Box & Muller (1958): words (0, 1) and (2, 3) of a block give a radius and an angle each, in double, so that machines
// whose last bits differ still agree in float32.
void normal_cpu(Stream stream, const Tensor& x, const Tensor& state, double mean, double std) {
  ASSERT(x.is_contiguous());
  visit_floating("normal", x.dtype(), [&]<class T>() {
    for_each_batch(stream, RandomState(state), x.numel(), kUnitElements / 16,
                   [=, to = x.data<T>()](int64_t first, int64_t n, const uint32_t* words) {
                     double normals[kBatch];
                     for (int64_t i = 0; i < kBatch; i += 2) {
                       // 1 - u lies in (0, 1]: its logarithm is finite.
                       const double radius = std::sqrt(-2 * wide_log(1 - uniform_from(words[i])));
                       const Direction angle = direction(uniform_from(words[i + 1]));
                       normals[i] = radius * angle.cosine;
                       normals[i + 1] = radius * angle.sine;
                     }
                     for (int64_t i = 0; i < n; ++i) to[first + i] = static_cast<T>(mean + std * normals[i]);
                   });
  });
}

void dropout_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& state, double p) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  // uniform >= p for a uniform number of 24 bits, without leaving the integers.
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(std::min(1.0, std::max(0.0, p)) * 0x1p24));
  visit_floating("dropout", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A scale = p < 1 ? static_cast<A>(1 / (1 - p)) : A{0};
    for_each_batch(stream, RandomState(state), x.numel(), kUnitElements / 4,
                   [=, to = y.data<T>(), from = x.data<T>()](int64_t first, int64_t n, const uint32_t* words) {
                     for (int64_t i = 0; i < n; ++i) {
                       const A kept = static_cast<A>(from[first + i]) * scale;
                       to[first + i] = static_cast<T>(words[i] >> 8 >= threshold ? kept : A{0});
                     }
                   });
  });
}

REGISTER_KERNEL(advance_random_state, DeviceType::CPU, Provider::Native, advance_random_state_cpu);
REGISTER_KERNEL(uniform, DeviceType::CPU, Provider::Native, uniform_cpu);
REGISTER_KERNEL(normal, DeviceType::CPU, Provider::Native, normal_cpu);
REGISTER_KERNEL(dropout, DeviceType::CPU, Provider::Native, dropout_cpu);

}  // namespace
}  // namespace ringgrad::cpu
