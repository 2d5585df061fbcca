// The products of a tile of attention: a few queries by a few keys. One thread multiplies, by the
// register tiles of the convolutions, or by Eigen for float64. Private to core/cpu/attention*.cpp.
#pragma once

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/packed_product.h"

namespace ringgrad::cpu {

// The size of a tile. Scores and weights [kTileQueries, kTileKeys] are in the first-level cache.
inline constexpr int64_t kTileQueries = 48;
inline constexpr int64_t kTileKeys = 128;

inline int64_t padded(int64_t size, int64_t to) { return ceil_div(size, to) * to; }

// T is float or bfloat16. Results are float, and their rows have space for whole panels.
template <class T>
struct TileProducts {
  using Sum = float;
  using Product =
      std::conditional_t<std::is_same_v<T, float>, conv::Float32Product, conv::BFloat16Product>;
  static constexpr int64_t kTerms = Product::kTerms;
  using Left = conv::LeftMatrix;
  struct Right {
    const float* data;
    int64_t steps;
  };

  static int64_t steps(int64_t terms) { return ceil_div(terms, kTerms); }
  // Return how many floats left() and right() need at most.
  static int64_t left_size(int64_t rows, int64_t terms) { return padded(rows, 4) * steps(terms); }
  static int64_t right_size(int64_t terms, int64_t columns) {
    return steps(terms) * padded(columns, conv::kPanel);
  }

  static Left left(const Matrix<T>& a, float* memory) { return left_of(a, memory); }
  static Right right(const Matrix<T>& b, float* memory) {
    pack_right(b, memory);
    return {memory, steps(b.rows)};
  }

  // Weights [rows, keys] as a left factor, or transposed as one. Their rows are kTileKeys apart,
  // and have zeros from `keys` to the next multiple of 16. `memory` has space for all weights.
  static Left weights(const float* weights, int64_t rows, int64_t keys, float* memory) {
    if constexpr (kTerms == 1) {
      return {weights, kTileKeys, 1, keys, &kBegin, 1};
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        auto* const to = reinterpret_cast<bfloat16*>(memory + i * kTileKeys / kTerms);
        for (int64_t j = 0; j < keys; j += conv::kLanes)
          conv::store(to + j, conv::load(weights + i * kTileKeys + j));
      }
      return {memory, kTileKeys / kTerms, 1, steps(keys), &kBegin, 1};
    }
  }
  static Left turned_weights(const float* weights, int64_t rows, int64_t keys, float* memory) {
    if constexpr (kTerms == 1) {
      return {weights, 1, kTileKeys, rows, &kBegin, 1};
    } else {
      for (int64_t i = 0; i < rows; i += kTerms)
        for (int64_t j = 0; j < keys; j += conv::kLanes) {
          const float* const first = weights + i * kTileKeys + j;
          const bool is_last = i + 1 == rows;
          conv::store(memory + i / kTerms * kTileKeys + j,
                      conv::pair_of(conv::load(first),
                                    is_last ? conv::Vector{} : conv::load(first + kTileKeys)));
        }
      return {memory, 1, kTileKeys, steps(rows), &kBegin, 1};
    }
  }

  // c (+)= left right, for these rows and columns, whose number may be less than right's.
  static void multiply(float* c, int64_t stride, int64_t rows, int64_t columns, const Left& left,
                       const Right& right, bool accumulate) {
    const int64_t width = padded(columns, kChannelBlock);
    for (int64_t j = 0; j < width; j += conv::kPanel)
      conv::multiply<Product>(
          left, rows, conv::packed_panel(right.data + j * right.steps, right.steps, conv::kPanel),
          std::min(conv::kPanel, width - j), c + j, stride, accumulate);
  }

 private:
  static constexpr int64_t kBegin = 0;
};

// The factors are read in place.
template <>
struct TileProducts<double> {
  using Sum = double;
  using Left = Matrix<double>;
  using Right = Matrix<double>;

  static int64_t left_size(int64_t, int64_t) { return 0; }
  static int64_t right_size(int64_t, int64_t) { return 0; }
  static Left left(const Matrix<double>& a, double*) { return a; }
  static Right right(const Matrix<double>& b, double*) { return b; }
  static Left weights(double* weights, int64_t rows, int64_t keys, double*) {
    return {weights, rows, keys, kTileKeys};
  }
  static Left turned_weights(double* weights, int64_t rows, int64_t keys, double*) {
    return Matrix<double>{weights, rows, keys, kTileKeys}.transposed();
  }
  static void multiply(double* c, int64_t stride, int64_t rows, int64_t columns, const Left& left,
                       const Right& right, bool accumulate) {
    const Matrix<double> to{c, rows, columns, stride};
    if (!accumulate)
      for (int64_t i = 0; i < rows; ++i) std::fill_n(to.at(i, 0), columns, 0.0);
    if (left.cols > 0) add_product(to, left, right.block(0, 0, left.cols, columns));
  }
};

}  // namespace ringgrad::cpu
