// The parameters of windowed operations on images, as C++20 designated initialisers: conv2d(x, w,
// b, {.stride = 2}). Braces without names are a height and a width, as in PyTorch: in max_pool2d(x,
// {3, 2}) the kernel is 3 × 2.
#pragma once

#include <cstdint>
#include <string>

#include "ringgrad/core/base/only.h"

namespace ringgrad {

// A height and a width. One number sets both.
struct Pair {
  int64_t h;
  int64_t w;
  template <class A>
  requires kIsOfKind<A, int64_t>
  constexpr Pair(A both) : Pair(both, both) {}
  constexpr Pair(Int64 h, Int64 w) : h(h), w(w) {}
  bool operator==(const Pair&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Pair& pair) {  // 3×2
    return out << std::to_string(pair.h) << "×" << std::to_string(pair.w);
  }
};

// The first member of a struct whose other members may be initialised only by name. Without it {3,
// 2} would initialise the first two members. It has an address of its own: with
// [[no_unique_address]] clang 16 crashes, or takes all memory, in functions that use such structs.
struct OnlyByName {
  explicit OnlyByName() = default;
};

struct Conv2dOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair stride = 1;
  Pair padding = 0;  // zeros on every side
  Pair dilation = 1;
  int64_t groups = 1;  // channels are split into groups that are independent of each other

  // Returns ⌊(in + 2 padding - dilation (kernel - 1) - 1) / stride⌋ + 1.
  int64_t out_h(int64_t in, int64_t kernel) const {
    return (in + 2 * padding.h - dilation.h * (kernel - 1) - 1) / stride.h + 1;
  }
  int64_t out_w(int64_t in, int64_t kernel) const {
    return (in + 2 * padding.w - dilation.w * (kernel - 1) - 1) / stride.w + 1;
  }
};

struct Pool2dOptions {
  OnlyByName only_by_name = OnlyByName();
  Pair kernel = 2;
  Pair stride = 0;            // 0: the kernel size
  Pair padding = 0;           // at most half the kernel; the padding never wins a maximum
  bool count_padding = true;  // for avg_pool2d: padding counts in the divisor
};

// Chooses an algorithm for the CPU's convolutions if several could compute them. The setting holds
// for the process. core/README.md lists which convolutions Auto computes by Winograd's algorithms,
// and what these cost in precision and range.
enum class ConvAlgorithm : uint8_t {
  Auto,      // the fastest for each geometry
  Direct,    // everywhere: exact sums of the products in the definition
  Winograd,  // wherever a scheme for the geometry exists, direct elsewhere
};

// Says for the user how the CPU's convolutions multiply bfloat16 numbers: on tiles (matrix
// products, too, then), in pairs, or as float32.
std::string bfloat16_products();

// Applies to convolutions that begin afterwards, on every thread.
void set_conv_algorithm(ConvAlgorithm algorithm);
ConvAlgorithm conv_algorithm();

}  // namespace ringgrad
