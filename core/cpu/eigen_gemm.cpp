#include "ringgrad/core/cpu/eigen_gemm.h"

// g++ 12 takes the undefined registers of its own AVX-512 headers for uninitialised variables (GCC
// bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#pragma GCC diagnostic pop

#include "ringgrad/core/base/check.h"

namespace ringgrad::cpu {
namespace {

template <class T, int kOrder>
auto map(const Matrix<T>& m) {
  using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>;
  return Eigen::Map<Dense, 0, Eigen::OuterStride<>>(m.data, m.rows, m.cols,
                                                    Eigen::OuterStride<>(m.stride));
}

// Eigen cuts a long reduction to suit the caches, so its bits would depend on the machine. With
// these cache sizes it never cuts segments of up to this many terms. Sums of sums also have a
// smaller error than one long sum (k = 2000: a quarter).
constexpr int64_t kSegment = 128;
[[maybe_unused]] const bool same_caches_everywhere =
    (Eigen::setCpuCacheSizes(32 << 10, 1 << 20, 32 << 20), true);

template <class T>
void add_segment(const Matrix<T>& c, const Matrix<T>& a, const Matrix<T>& b) {
  using Eigen::ColMajor;
  using Eigen::RowMajor;
  auto to = map<T, RowMajor>(c);
  if (a.is_transposed) {
    if (b.is_transposed)
      to.noalias() += map<T, ColMajor>(a) * map<T, ColMajor>(b);
    else
      to.noalias() += map<T, ColMajor>(a) * map<T, RowMajor>(b);
  } else {
    if (b.is_transposed)
      to.noalias() += map<T, RowMajor>(a) * map<T, ColMajor>(b);
    else
      to.noalias() += map<T, RowMajor>(a) * map<T, RowMajor>(b);
  }
}

}  // namespace

template <class T>
void add_product(const Matrix<T>& c, const Matrix<T>& a, const Matrix<T>& b) {
  ASSERT(!c.is_transposed && a.rows == c.rows && b.cols == c.cols && a.cols == b.rows);
  const int64_t segments = (a.cols + kSegment - 1) / kSegment;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t first = a.cols * i / segments;
    const int64_t count = a.cols * (i + 1) / segments - first;
    add_segment(c, a.block(0, first, a.rows, count), b.block(first, 0, count, b.cols));
  }
}

template void add_product(const Matrix<float>&, const Matrix<float>&, const Matrix<float>&);
template void add_product(const Matrix<double>&, const Matrix<double>&, const Matrix<double>&);

}  // namespace ringgrad::cpu
