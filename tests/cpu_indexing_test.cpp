// index_select, gather and their adjoints on the CPU against loops over every element.
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

const std::vector<DType> kDTypes{DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                                 DType::Int64,   DType::Int32,   DType::UInt8};

Tensor random_index(const Shape& shape, int64_t n, uint32_t seed) {
  return random_tensor(shape, DType::Int64, seed, 0, n);
}

struct Sizes {
  int64_t outer, n, m, inner;
};
const std::vector<Sizes> kSizes{{1, 5, 3, 1}, {3, 7, 20, 9}, {2, 4, 50, 130}, {1, 3, 0, 4}, {0, 3, 2, 4}, {2, 3, 4, 0}};

}  // namespace

TEST_CASE("index_select and gather", "[quick][cpu]") {
  for (DType dtype : kDTypes)
    for (const Sizes& s : kSizes) {
      const Tensor x = random_tensor({s.outer, s.n, s.inner}, dtype, 1, 0, 100);
      const Tensor y = empty({s.outer, s.m, s.inner}, {.dtype = dtype});
      const Tensor rows = random_index({s.m}, s.n, 2), places = random_index(y.shape(), s.n, 3);
      const std::vector<double> from = values(x), row = values(rows), place = values(places);
      std::vector<double> selected(y.numel()), gathered(y.numel());
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t j = 0; j < s.m; ++j)
          for (int64_t i = 0; i < s.inner; ++i) {
            const int64_t at = (o * s.m + j) * s.inner + i;
            selected[at] = from[(o * s.n + static_cast<int64_t>(row[j])) * s.inner + i];
            gathered[at] = from[(o * s.n + static_cast<int64_t>(place[at])) * s.inner + i];
          }
      kernels::index_select(y, x, rows);
      require_close(y, selected, 0);
      kernels::gather(y, x, places);
      require_close(y, gathered, 0);
    }
}

TEST_CASE("index_add and scatter_add", "[quick][cpu]") {
  for (DType dtype : kDTypes)
    for (const Sizes& s : kSizes) {
      const Tensor dy = random_tensor({s.outer, s.m, s.inner}, dtype, 4, 0, 4);
      const Tensor rows = random_index({s.m}, s.n, 5), places = random_index(dy.shape(), s.n, 6);
      const std::vector<double> from = values(dy), row = values(rows), place = values(places);
      for (bool by_row : {true, false}) {
        const Tensor dx = random_tensor({s.outer, s.n, s.inner}, dtype, 7, 0, 4);  // what is there is added to
        std::vector<double> expected = values(dx);
        for (int64_t o = 0; o < s.outer; ++o)
          for (int64_t j = 0; j < s.m; ++j)
            for (int64_t i = 0; i < s.inner; ++i) {
              const int64_t at = (o * s.m + j) * s.inner + i;
              expected[(o * s.n + static_cast<int64_t>(by_row ? row[j] : place[at])) * s.inner + i] += from[at];
            }
        by_row ? kernels::index_add(dx, dy, rows) : kernels::scatter_add(dx, dy, places);
        require_close(dx, expected, is_floating(dtype) ? sum_tolerance(dtype, s.m) : 0);
      }
    }
}

TEST_CASE("an index outside is skipped", "[quick][cpu]") {
  const Tensor x = tensor<float>({1, 2, 3}, {1, 3, 1}), index = tensor<int64_t>({-1, 1, 3}), y = zeros({1, 3, 1});
  kernels::index_select(y, x, index);
  require_close(y, {0, 2, 0}, 0);
  kernels::gather(y, x, tensor<int64_t>({7, -9, 2}, {1, 3, 1}));
  require_close(y, {0, 2, 3}, 0);
  kernels::index_add(x, y, index);
  require_close(x, {1, 4, 3}, 0);
  kernels::scatter_add(x, y, tensor<int64_t>({1, 3, 0}, {1, 3, 1}));
  require_close(x, {4, 4, 3}, 0);
}

TEST_CASE("index_add sums in order on any number of threads", "[quick][threads][cpu]") {
  const Tensor dy = random_tensor({2, 900, 130}, DType::Float32, 8), index = random_index({900}, 5, 9);
  require_same_on_any_threads([&] {
    const Tensor dx = zeros({2, 5, 130});
    kernels::index_add(dx, dy, index);
    return std::vector<Tensor>{dx};
  });
}
