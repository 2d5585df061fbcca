// The only place that uses Eigen: c += a b on one thread. Private to core/cpu.
#pragma once

#include <cstdint>

namespace ringgrad::cpu {

// A matrix inside an array. Rows (or, if transposed, columns) are contiguous and `stride` elements
// apart.
template <class T>
struct Matrix {
  T* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  bool is_transposed = false;

  T* at(int64_t row, int64_t col) const {
    return data + (is_transposed ? row + col * stride : row * stride + col);
  }
  Matrix transposed() const { return {data, cols, rows, stride, !is_transposed}; }
  // Returns the rows × cols part whose first element is (row, col).
  Matrix block(int64_t row, int64_t col, int64_t rows, int64_t cols) const {
    return {at(row, col), rows, cols, stride, is_transposed};
  }
};

// c [M, N] += a [M, K] b [K, N], float or double. REQUIRES: c is not transposed and does not
// overlap a or b.
template <class T>
void add_product(const Matrix<T>& c, const Matrix<T>& a, const Matrix<T>& b);

extern template void add_product(const Matrix<float>&, const Matrix<float>&, const Matrix<float>&);
extern template void add_product(const Matrix<double>&, const Matrix<double>&,
                                 const Matrix<double>&);

}  // namespace ringgrad::cpu
