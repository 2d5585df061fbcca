// The two kinds of products a matrix product can be made of. Matrices consist of 32-bit words: a word of a float32
// product is one number, a word of a bfloat16 product holds two that are neighbours in the reduction, and a
// multiplication is a dot product of two such pairs, summed in float32. Everything else, the layout of all buffers
// included, is the same.
#pragma once

#include <type_traits>

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

struct Float32Product {
  static constexpr int kTerms = 1;  // numbers in a word
  static Vector multiply_add(Vector sum, const float* a, Vector b) { return sum + *a * b; }
  // Numbers that are neighbours in the reduction, as words.
  static void store_neighbours(float* words, Vector v) { store(words, v); }
};

struct BFloat16Product {
  static constexpr int kTerms = 2;
  static Vector multiply_add(Vector sum, const float* a, Vector b) { return add_pair_products(sum, a, b); }
  static void store_neighbours(float* words, Vector v) { store(reinterpret_cast<bfloat16*>(words), v); }
};

// In which images of type T are multiplied. A processor without products of pairs widens bfloat16 numbers: they take
// half the memory, and as many operations.
template <class T>
using ProductOf = std::conditional_t<kMultipliesPairs && std::is_same_v<T, bfloat16>, BFloat16Product, Float32Product>;

}  // namespace ringgrad::conv
