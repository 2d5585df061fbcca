// Random numbers that are the same on every device. They come from Philox4x32-10 (Salmon, Moraes,
// Dror & Shaw 2011), a stateless function of (seed, offset, index). Element i of a tensor gets the
// same number whichever thread computes it. Tensors draw from a device's Generator. Everything else
// that is random uses a RandomSequence, which is named by its purpose.
//
// A state names a stream of numbers: an int64 tensor [seed, offset]. Element i of a draw uses word
// i % 4 of the Philox block with key = seed and counter = (offset + i / 4, 0). A draw of n numbers
// takes ⌈n / 4⌉ offsets. An element of float64 or int64 has 64 bits: words 2 (i % 2) and 2 (i % 2)
// + 1 of the block at offset + i / 2. That draw takes ⌈n / 2⌉ offsets.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct PhiloxBlock {
  uint32_t word[4];
};

// Returns the 128-bit output for a 64-bit key and a 64-bit counter. `lane` is the upper half of the
// 128-bit counter.
RINGGRAD_HOST_DEVICE inline PhiloxBlock philox(uint64_t key, uint64_t counter, uint64_t lane = 0) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter);
  uint32_t c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(lane);
  uint32_t c3 = static_cast<uint32_t>(lane >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Joins words 2 i and 2 i + 1 into 64 bits.
RINGGRAD_HOST_DEVICE inline uint64_t wide_word(const uint32_t* words, int64_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

// Returns a uniform number in [0, 1) with this many bits, exact in float32. More bits than a type's
// precision would round up to 1.
RINGGRAD_HOST_DEVICE inline float uniform_from(uint32_t word, int bits = 24) {
  return static_cast<float>(word >> (32 - bits)) / static_cast<float>(1 << bits);
}
template <class T>
inline constexpr int kUniformBits = std::is_same_v<T, bfloat16>  ? 8
                                    : std::is_same_v<T, float16> ? 11
                                                                 : 24;
// The number of words that make one number of type T. A float64 takes two words, so that all its 53
// bits are random.
template <class T>
inline constexpr int kWordsOf = std::is_same_v<T, double> || std::is_same_v<T, int64_t> ? 2 : 1;
// Returns the i-th number in [0, 1) that these words make for type T.
template <class T>
RINGGRAD_HOST_DEVICE auto uniform_number(const uint32_t* words, int64_t i) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(wide_word(words, i) >> 11) * 0x1p-53;
  else
    return uniform_from(words[i], kUniformBits<T>);
}

// Draws a uniform integer in [0, n), without bias. next() gives 64 random bits at each call (Lemire
// 2019, "Fast random integer generation in an interval"). REQUIRES: n >= 1.
template <class Next>
RINGGRAD_HOST_DEVICE uint64_t uniform_below(uint64_t n, Next&& next) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t reject = (0 - n) % n;
    while (static_cast<uint64_t>(product) < reject) product = static_cast<Wide>(next()) * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

// The state of a device's random numbers. Each operation that draws advances it and keeps a
// snapshot.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, Device device = {});
  explicit Generator(const Tensor& state);  // goes on from a copy of another generator's state()
  // Returns a snapshot [seed, offset] for a draw of `count` numbers. Advances the state on the
  // device, without waiting for it.
  Tensor draw(int64_t count);
  const Tensor& state() const { return state_; }  // int64 [2]: saved in checkpoints
  void set_state(uint64_t seed, uint64_t offset);

 private:
  Tensor state_;
};

// Returns the device's generator that dropout and initialisation use. Not thread-safe per device.
Generator& default_generator(Device device = {});
// Returns the generator that a GeneratorScope gives this thread for the device, or nullptr. Set
// before main by core/further/generator_scope.cpp.
using ScopedGenerator = Generator* (*)(Device device);
inline constinit ScopedGenerator scoped_generator = nullptr;
void manual_seed(uint64_t seed);  // seeds the default generator of every device

// These write in place. They take floating dtypes and any strides.
void uniform_(const Tensor& x, Real low, Real high);
void normal_(const Tensor& x, Real mean, Real std);

// Sequences for different purposes are unrelated, though they share a seed.
enum class Purpose : uint64_t {
  Permutation = 0x7065726d75746174u,
  Augmentation = 0x6175676d656e7461u,
  Digits = 0x6469676974730000u,
  Shapes = 0x7368617065730000u,
  Episode = 0x657069736f646500u,
};

// A sequence of random numbers named by (seed, purpose, stream, substream), for example the crop of
// image 17 in epoch 3. Every caller gets the same numbers, on any machine, rank, worker thread or
// device, and in any order.
class RandomSequence {
 public:
  // Each substream has 2^25 numbers of its own. REQUIRES: substream < 2^40.
  RINGGRAD_HOST_DEVICE RandomSequence(uint64_t seed, Purpose purpose, uint64_t stream,
                                      uint64_t substream = 0)
      : key_(seed ^ static_cast<uint64_t>(purpose)), counter_(substream << 24), lane_(stream) {}

  RINGGRAD_HOST_DEVICE uint64_t next() {
    if (have_spare_) {
      have_spare_ = false;
      return spare_;
    }
    const PhiloxBlock block = philox(key_, counter_++, lane_);
    spare_ = wide_word(block.word, 1);
    have_spare_ = true;
    return wide_word(block.word, 0);
  }

  // Returns a uniform integer in [0, n), without bias. REQUIRES: n >= 1.
  RINGGRAD_HOST_DEVICE uint64_t below(uint64_t n) {
    return uniform_below(n, [this] { return next(); });
  }

  // Returns a uniform integer in [low, high], both included.
  RINGGRAD_HOST_DEVICE int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(below(static_cast<uint64_t>(int64_t{high} - low) + 1));
  }

 private:
  uint64_t key_;
  uint64_t counter_;
  uint64_t lane_;
  uint64_t spare_ = 0;
  bool have_spare_ = false;
};

}  // namespace ringgrad
