// sgd_step and adam_step on several threads; tests/op_specs_optimizer.cpp compares them with their formulas.
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

TEST_CASE("optimizer steps do not depend on the number of threads", "[quick][threads][cpu]") {
  const int64_t n = 100003;
  require_same_on_any_threads([&] {
    const Tensor p = random_tensor({n}, DType::Float32, 3), q = random_tensor({n}, DType::Float32, 4), m = zeros({n}),
                 v = zeros({n});
    const Tensor lr = scalar(0.1, {.dtype = DType::Float64}), step = scalar(3, {.dtype = DType::Int64});
    kernels::sgd_step(p, m, q, lr, step, {.momentum = 0.9});
    kernels::adam_step(q, m, v, p, lr, step, {});
    return std::vector<Tensor>{p, q, m, v};
  });
}
