// sgd_step and adam_step on the CPU against their formulas in double, over several steps.
#include <limits>

#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

constexpr int kSteps = 4;

double tolerance(DType dtype) { return 4 * kSteps * epsilon(dtype); }

void check_sgd(int64_t n, DType dtype, const kernels::SgdOptions& o) {
  INFO(n << " " << dtype << " momentum " << o.momentum << " nesterov " << o.nesterov);
  const Tensor param = random_tensor({n}, dtype, 1);
  // An uninitialised buffer may hold anything.
  const Tensor buffer =
      o.momentum == 0 ? Tensor() : full({n}, std::numeric_limits<double>::quiet_NaN(), {.dtype = dtype});
  std::vector<double> p = values(param), v(n);
  for (int step = 0; step < kSteps; ++step) {
    const double lr = 0.1 / (1 + step);
    const Tensor grad = random_tensor({n}, dtype, 10 + step);
    kernels::sgd_step(param, buffer, grad, scalar(lr, {.dtype = DType::Float64}), scalar(step, {.dtype = DType::Int64}),
                      o);
    const std::vector<double> g = values(grad);
    for (int64_t i = 0; i < n; ++i) {
      const double gradient = g[i] + o.weight_decay * p[i];
      v[i] = step == 0 ? gradient : o.momentum * v[i] + (1 - o.dampening) * gradient;
      p[i] -= lr * (o.momentum == 0 ? gradient : o.nesterov ? gradient + o.momentum * v[i] : v[i]);
    }
  }
  require_close(param, p, tolerance(dtype));
  if (buffer.defined()) require_close(buffer, v, tolerance(dtype));
}

void check_adam(int64_t n, DType dtype, const kernels::AdamOptions& o) {
  INFO(n << " " << dtype << " decay " << o.weight_decay << " decoupled " << o.decoupled);
  const Tensor param = random_tensor({n}, dtype, 2), first = zeros({n}, {.dtype = dtype}),
               second = zeros({n}, {.dtype = dtype});
  std::vector<double> p = values(param), m(n), v(n);
  for (int step = 0; step < kSteps; ++step) {
    const double lr = 0.01;
    const Tensor grad = random_tensor({n}, dtype, 20 + step);
    kernels::adam_step(param, first, second, grad, scalar(lr, {.dtype = DType::Float64}),
                       scalar(step, {.dtype = DType::Int64}), o);
    const std::vector<double> g = values(grad);
    for (int64_t i = 0; i < n; ++i) {
      const double gradient = g[i] + (o.decoupled ? 0 : o.weight_decay * p[i]);
      if (o.decoupled) p[i] -= lr * o.weight_decay * p[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gradient;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gradient * gradient;
      p[i] -=
          lr * m[i] / (1 - std::pow(o.beta1, step + 1)) / (std::sqrt(v[i] / (1 - std::pow(o.beta2, step + 1))) + o.eps);
    }
  }
  // Where the gradients nearly cancel, m / sqrt(v) amplifies their rounding; lr bounds what that can do.
  require_close(param, p, 4 * tolerance(dtype));
  require_close(first, m, tolerance(dtype));
  require_close(second, v, tolerance(dtype));
}

}  // namespace

TEST_CASE("sgd_step", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (int64_t n : {0, 1, 1003}) {
      check_sgd(n, dtype, {});
      check_sgd(n, dtype, {.weight_decay = 0.1});
      check_sgd(n, dtype, {.momentum = 0.9});
      check_sgd(n, dtype, {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01});
      check_sgd(n, dtype, {.momentum = 0.8, .weight_decay = 0.01, .nesterov = true});
    }
}

TEST_CASE("adam_step", "[quick][cpu]") {
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16})
    for (int64_t n : {0, 1, 1003}) {
      check_adam(n, dtype, {});
      check_adam(n, dtype, {.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1});
      check_adam(n, dtype, {.weight_decay = 0.1, .decoupled = true});
    }
}

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
