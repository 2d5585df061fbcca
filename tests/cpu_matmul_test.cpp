// The matrix product on the CPU against three loops in double.
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

void check_matmul(const Tensor& a, const Tensor& b, bool with_bias) {
  const int64_t batches = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
  INFO(a.shape() << a.strides() << " times " << b.shape() << b.strides() << ", " << a.dtype());
  const Tensor bias = with_bias ? random_tensor({n}, a.dtype(), 9) : Tensor();
  const std::vector<double> left = values(a), right = values(b),
                            shift = with_bias ? values(bias) : std::vector<double>(n);
  std::vector<double> expected(batches * m * n);
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double& sum = expected[(batch * m + i) * n + j] = shift[j];
        for (int64_t l = 0; l < k; ++l) sum += left[(batch * m + i) * k + l] * right[(batch * k + l) * n + j];
      }
  const Tensor c = empty({batches, m, n}, {.dtype = a.dtype()});
  kernels::matmul(c, a, b, bias);
  require_close(c, expected, sum_tolerance(a.dtype(), k));
}

Tensor transposed(const Tensor& x) {  // of the last two dimensions
  return x.as_strided({x.size(0), x.size(2), x.size(1)}, {x.stride(0), x.stride(2), x.stride(1)}, 0);
}

}  // namespace

TEST_CASE("matmul of odd shapes", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (const Shape& bmnk : {Shape{1, 1, 1, 1},
                              {2, 3, 5, 7},
                              {1, 100, 10, 129},
                              {3, 33, 65, 17},
                              {1, 1, 40, 30},
                              {1, 40, 1, 30},
                              {2, 3, 4, 0},
                              {0, 3, 4, 5},
                              {1, 0, 4, 5},
                              {1, 4, 0, 5}})
      for (bool with_bias : {false, true})
        check_matmul(random_tensor({bmnk[0], bmnk[1], bmnk[3]}, dtype, 1),
                     random_tensor({bmnk[0], bmnk[3], bmnk[2]}, dtype, 2), with_bias);
}

TEST_CASE("matmul of several tiles", "[quick][cpu]") {
  check_matmul(random_tensor({1, 200, 900}, DType::Float32, 1), random_tensor({1, 900, 150}, DType::Float32, 2), true);
  check_matmul(random_tensor({2, 37, 5000}, DType::Float32, 1), random_tensor({2, 5000, 61}, DType::Float32, 2), false);
}

TEST_CASE("matmul of transposed, sliced and expanded operands", "[quick][cpu]") {
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    const Tensor x = random_tensor({2, 24, 24}, dtype, 3), y = random_tensor({2, 24, 24}, dtype, 4);
    check_matmul(transposed(x), y, false);
    check_matmul(x, transposed(y), true);
    check_matmul(transposed(x), transposed(y), false);
    check_matmul(x.as_strided({2, 12, 24}, {576, 48, 1}, 0), y, false);  // every second row
    check_matmul(x.as_strided({2, 24, 12}, {576, 24, 2}, 1), y.as_strided({2, 12, 24}, {576, 24, 1}, 0), false);
    check_matmul(x.as_strided({5, 24, 24}, {0, 24, 1}, 0), y.as_strided({5, 24, 3}, {0, 1, 24}, 0), false);
    check_matmul(x.as_strided({1, 7, 24}, {0, 0, 1}, 0), y.as_strided({1, 24, 9}, {0, 1, 0}, 0), false);  // repeated
    check_matmul(x.as_strided({2, 1, 24}, {576, 5, 24}, 0), y.as_strided({2, 24, 1}, {576, 24, 7}, 0), false);
  }
}

TEST_CASE("matmul does not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor a = random_tensor({3, 150, 700}, DType::Float32, 5), b = random_tensor({3, 700, 130}, DType::Float32, 6);
  require_same_on_any_threads([&] {
    const Tensor c = empty({3, 150, 130});
    kernels::matmul(c, a, b, {});
    return std::vector<Tensor>{c};
  });
}
