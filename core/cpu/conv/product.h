// The three kinds of products that a matrix product can be made of. Matrices consist of 32-bit
// words. A word of a float32 product is one number. A word of the other kinds holds two numbers
// that are neighbours in the reduction, and a multiplication is a dot product of two such pairs.
// They are bfloat16 numbers summed in float32, or 16-bit integers summed exactly and scaled at the
// end (see Note [Products of 16-bit integers]). Everything else, including the layout of all
// buffers, is the same.
#pragma once

#include <type_traits>

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

struct Float32Product {
  using Sum = Vector;
  static constexpr bool kScaled = false;
  static constexpr int kTerms = 1;  // numbers in a word
  static Vector multiply_add(Vector sum, const float* a, Vector b) { return sum + *a * b; }
  // Returns numbers that are neighbours in the reduction as words.
  static float* neighbours(float* words) { return words; }
};

struct BFloat16Product {
  using Sum = Vector;
  static constexpr bool kScaled = false;
  static constexpr int kTerms = 2;
  static Vector multiply_add(Vector sum, const float* a, Vector b) {
    return add_pair_products(sum, a, b);
  }
  static bfloat16* neighbours(float* words) { return reinterpret_cast<bfloat16*>(words); }
};

struct Int16Product {
  using Sum = Integers;
  static constexpr bool kScaled = true;
  static constexpr int kTerms = 2;
  static Integers multiply_add(Integers sum, const float* a, Vector b) {
    return add_pair_products(sum, a, b);
  }
};

// The product for images of type T. A processor without products of pairs widens bfloat16 numbers:
// they take half the memory, but as many operations as float32. Winograd's algorithm may choose
// differently: WinogradProduct.
template <class T>
using ProductOf = std::conditional_t<kMultipliesPairs && std::is_same_v<T, bfloat16>,
                                     BFloat16Product, Float32Product>;

}  // namespace ringgrad::conv
