// The parameters of windowed operations on images, as C++20 designated initialisers: conv2d(x, w,
// b, {.stride = 2}). Braces without names are a height and a width, as in PyTorch: max_pool2d(x,
// {3, 2}) has a kernel of 3×2.
#pragma once

#include <cstdint>
#include <string>

#include "ringgrad/core/base/only.h"

namespace ringgrad {

// A height and a width; one number stands for both.
struct Pair {
  int64_t h;
  int64_t w;
  template <class A>
  requires kIsOfKind<A, int64_t>
  constexpr Pair(A both) : Pair(both, both) {}
  constexpr Pair(Int64 h, Int64 w) : h(h), w(w) {}
  bool operator==(const Pair&) const = default;
};

// As a struct's first member: what follows is initialised by name only. Without it {3, 2} would be
// the first two of them.
struct OnlyByName {
  explicit OnlyByName() = default;
};

struct Conv2dOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;  // zeros on every side
  Pair dilation = 1;
  int64_t groups = 1;  // channels are split into groups that do not see each other

  // ⌊(in + 2 padding - dilation (kernel - 1) - 1) / stride⌋ + 1
  int64_t out_h(int64_t in, int64_t kernel) const {
    return (in + 2 * padding.h - dilation.h * (kernel - 1) - 1) / stride.h + 1;
  }
  int64_t out_w(int64_t in, int64_t kernel) const {
    return (in + 2 * padding.w - dilation.w * (kernel - 1) - 1) / stride.w + 1;
  }
};

struct Pool2dOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  Pair kernel = 2;
  Pair stride = 0;            // 0: the kernel size
  Pair padding = 0;           // at most half the kernel; the padding never wins a maximum
  bool count_padding = true;  // avg_pool2d: whether padding counts in the divisor
};

// Chooses an algorithm for the CPU's convolutions where several could compute them. It is a setting
// of the process. core/README.md lists which convolutions Auto gives to Winograd's algorithms, and
// what these cost in precision and range.
enum class ConvAlgorithm : uint8_t {
  Auto,      // the fastest for each geometry
  Direct,    // everywhere: exact sums, of the products that the definition names
  Winograd,  // wherever there is a scheme for the geometry, direct elsewhere
};

// How the CPU's convolutions multiply bfloat16 numbers, for people: on tiles (then matrix products
// do so, too), in pairs, or as float32.
std::string bfloat16_products();

// Holds for convolutions that begin afterwards, on every thread.
void set_conv_algorithm(ConvAlgorithm algorithm);
ConvAlgorithm conv_algorithm();

}  // namespace ringgrad
