// What the rows of tests/op_specs_indexing.cpp do not reach: indices outside, integers added, and several threads.
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

TEST_CASE("in every dtype an index outside is skipped, and a sum is added to what is there", "[quick][cpu]") {
  for (DType dtype :
       {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64, DType::Int32, DType::UInt8}) {
    INFO(dtype);
    const Tensor x = empty({1, 3, 1}, {.dtype = dtype}), y = zeros({1, 3, 1}, {.dtype = dtype});
    const Tensor index = tensor<int64_t>({-1, 1, 3});
    kernels::copy(x, tensor<float>({1, 2, 3}, {1, 3, 1}));
    kernels::index_select(y, x, index);
    require_close(y, {0, 2, 0}, 0);
    kernels::gather(y, x, tensor<int64_t>({7, -9, 2}, {1, 3, 1}));
    require_close(y, {0, 2, 3}, 0);
    kernels::index_add(x, y, index);
    require_close(x, {1, 4, 3}, 0);
    kernels::scatter_add(x, y, tensor<int64_t>({1, 3, 0}, {1, 3, 1}));
    require_close(x, {4, 4, 3}, 0);
  }
}

TEST_CASE("index_add sums in order on any number of threads", "[quick][threads][cpu]") {
  const Tensor dy = random_tensor({2, 900, 130}, DType::Float32, 8),
               index = random_tensor({900}, DType::Int64, 9, 0, 5);
  require_same_on_any_threads([&] {
    const Tensor dx = zeros({2, 5, 130});
    kernels::index_add(dx, dy, index);
    return std::vector<Tensor>{dx};
  });
}
