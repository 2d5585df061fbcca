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

// RINGGRAD_EMULATE_BFLOAT16: for measuring on any processor what products of bfloat16 numbers do to accuracy.
#if defined(__AVX512BF16__) || defined(RINGGRAD_EMULATE_BFLOAT16)
#define RINGGRAD_BFLOAT16_PRODUCTS 1
struct BFloat16Product {
  static constexpr int kTerms = 2;
  static Vector multiply_add(Vector sum, const float* a, Vector b) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(
        reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(_mm512_set1_ps(*a)), reinterpret_cast<__m512bh>(b)));
#else
    using Word __attribute__((may_alias)) = uint32_t;
    const Words left = Words{} + *reinterpret_cast<const Word*>(a), right = reinterpret_cast<Words>(b);
    const auto first = [](Words pair) { return reinterpret_cast<Vector>(pair << 16); };
    const auto second = [](Words pair) { return reinterpret_cast<Vector>(pair & 0xffff0000); };
    return sum + second(left) * second(right) + first(left) * first(right);
#endif
  }
  static void store_neighbours(float* words, Vector v) { store(reinterpret_cast<bfloat16*>(words), v); }
};
// In which images of type T are multiplied.
template <class T>
using ProductOf = std::conditional_t<std::is_same_v<T, bfloat16>, BFloat16Product, Float32Product>;
#else
#define RINGGRAD_BFLOAT16_PRODUCTS 0
// A processor without products of pairs widens bfloat16 numbers: they take half the memory, and as many operations.
template <class T>
using ProductOf = Float32Product;
#endif

}  // namespace ringgrad::conv
