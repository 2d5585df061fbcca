// The promise of core/device/parallel.h, kernel by kernel: results on the CPU do not depend on the
// number of threads. The tensors are so large that every kernel divides them.
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::cpu_threads_test {

namespace {

Tensor random_image(const Shape& shape, Layout layout, uint32_t seed) {
  const Tensor x = empty(shape, {.layout = layout});
  kernels::copy(x, random_tensor(shape, DType::Float32, seed));
  return x;
}

}  // namespace

TEST_CASE("sums do not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor x = random_tensor({37, 24, 33, 31}, DType::Float32, 14);
  require_same_on_any_threads([&] {
    std::vector<Tensor> sums;
    for (const Shape& kept : {Shape{1, 1, 1, 1}, {1, 24, 1, 1}, {37, 24, 33, 1}, {1, 24, 33, 31}})
      kernels::sum(sums.emplace_back(empty(kept)), x, 1);
    kernels::sum_squares(sums.emplace_back(empty({})), x);
    return sums;
  });
}

TEST_CASE("row-wise kernels do not depend on the number of threads", "[quick][threads][cpu]") {
  const Shape shape{3000, 70};
  const Tensor x = random_tensor(shape, DType::Float32, 11);
  const Tensor dy = random_tensor(shape, DType::Float32, 12);
  const Tensor w = random_tensor({70}, DType::Float32, 13);
  require_same_on_any_threads([&] {
    const Tensor y = empty(shape);
    const Tensor p = empty(shape);
    const Tensor dx = empty(shape);
    const Tensor mean = empty({3000});
    const Tensor rstd = empty({3000});
    const Tensor dw = empty({70});
    const Tensor db = empty({70});
    kernels::softmax(p, x);
    kernels::layer_norm(y, mean, rstd, x, w, {}, 1, 1e-5);
    kernels::layer_norm_backward(dx, dw, db, dy, x, mean, rstd, w, 1);
    return std::vector<Tensor>{y, p, dx, mean, rstd, dw, db};
  });
}

TEST_CASE("batch norm does not depend on the number of threads", "[quick][threads][cpu]") {
  for (const auto& [shape, layout] :
       std::vector<std::pair<Shape, Layout>>{{{19, 16, 33, 35}, Layout::Strided},
                                             {{19, 16, 33, 35}, Layout::ChannelBlocked},
                                             {{19 * 33 * 35, 21}, Layout::Strided}}) {
    const Tensor x = random_image(shape, layout, 8);
    const Tensor dy = random_image(shape, layout, 9);
    const Shape channels = {shape[1]};
    require_same_on_any_threads([&, shape = shape, layout = layout] {
      const Tensor mean = empty(channels);
      const Tensor var = empty(channels);
      const Tensor sum_dy = empty(channels);
      const Tensor sum_dy_xhat = empty(channels);
      const Tensor y = empty(shape, x.options());
      const Tensor dx = empty(shape, x.options());
      kernels::batch_norm_stats(mean, var, x);
      kernels::batch_norm_apply(y, {}, x, mean, var, {}, {}, {}, 1e-5, true);
      kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, 1e-5);
      kernels::batch_norm_backward_apply(dx, {}, dy, x, y, mean, var, {}, sum_dy, sum_dy_xhat, 1e-5,
                                         19 * 33 * 35);
      std::vector<Tensor> results{mean, var, y, sum_dy, sum_dy_xhat, dx};
      if (shape.dim() != 4) return results;
      const Tensor pooled = empty({19, 16, 11, 11}, x.options());
      const Tensor winners = empty_like(pooled);
      const Tensor dx3 = empty_like(dx);
      const Tensor index = empty(pooled.shape(), {.dtype = DType::Int32, .layout = layout});
      kernels::batch_norm_max_pool(pooled, winners, index, x, mean, var, {}, {}, 1e-5, true, 3);
      kernels::batch_norm_max_pool_backward(dx3, winners, index, x, pooled, mean, var, {}, sum_dy,
                                            sum_dy_xhat, 1e-5, 19 * 33 * 35, 3);
      results.insert(results.end(), {pooled, winners, index, dx3});
      return results;
    });
  }
}

TEST_CASE("pooling does not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor x = random_tensor({13, 16, 33, 31}, DType::Float32, 5);
  require_same_on_any_threads([&] {
    const Pool2dOptions options{.kernel = 3, .stride = 2, .padding = 1};
    const Tensor y = empty({13, 16, 17, 16});
    const Tensor index = empty(y.shape(), {.dtype = DType::Int32});
    const Tensor dx = empty(x.shape());
    kernels::max_pool2d(y, index, x, options);
    kernels::max_pool2d_backward(dx, y, index, options);
    return std::vector<Tensor>{y, index, dx};
  });
}

TEST_CASE("matmul does not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor a = random_tensor({3, 150, 700}, DType::Float32, 5);
  const Tensor b = random_tensor({3, 700, 130}, DType::Float32, 6);
  require_same_on_any_threads([&] {
    const Tensor c = empty({3, 150, 130});
    kernels::matmul(c, a, b, {});
    return std::vector<Tensor>{c};
  });
}

TEST_CASE("conv2d does not depend on the number of threads", "[quick][threads][cpu]") {
  const Conv2dOptions options{.padding = 1, .groups = 2};
  const Tensor x = random_tensor({9, 12, 24, 24}, DType::Float32, 5);
  const Tensor w = random_tensor({8, 6, 3, 3}, DType::Float32, 6);
  const Tensor dy = random_tensor({9, 8, 24, 24}, DType::Float32, 7);
  require_same_on_any_threads([&] {
    const Tensor y = empty(dy.shape());
    const Tensor dx = empty(x.shape());
    const Tensor dw = empty(w.shape());
    kernels::conv2d(y, x, w, {}, options);
    kernels::conv2d_backward_input(dx, dy, w, {}, options);
    kernels::conv2d_backward_weight(dw, dy, x, options);
    return std::vector<Tensor>{y, dx, dw};
  });
}

TEST_CASE("index_add sums in order on any number of threads", "[quick][threads][cpu]") {
  const Tensor dy = random_tensor({2, 900, 130}, DType::Float32, 8);
  const Tensor index = random_tensor({900}, DType::Int64, 9, 0, 5);
  require_same_on_any_threads([&] {
    const Tensor dx = zeros({2, 5, 130});
    kernels::index_add(dx, dy, index);
    return std::vector<Tensor>{dx};
  });
}

TEST_CASE("optimizer steps do not depend on the number of threads", "[quick][threads][cpu]") {
  const int64_t n = 100003;
  require_same_on_any_threads([&] {
    const Tensor p = random_tensor({n}, DType::Float32, 3);
    const Tensor q = random_tensor({n}, DType::Float32, 4);
    const Tensor m = zeros({n});
    const Tensor v = zeros({n});
    const Tensor lr = scalar(0.1, {.dtype = DType::Float64});
    const Tensor step = scalar(3, {.dtype = DType::Int64});
    kernels::sgd_step(p, m, q, lr, step, {.momentum = 0.9});
    kernels::adam_step(q, m, v, {}, p, lr, step, {});
    return std::vector<Tensor>{p, q, m, v};
  });
}

TEST_CASE("random numbers do not depend on the number of threads", "[quick][threads][cpu]") {
  require_same_on_any_threads([&] {
    const Tensor x = empty({100001});
    const Tensor y = empty({100001});
    const Tensor z = empty({100001});
    kernels::uniform(x, tensor<int64_t>({1, 2}), -1, 1);
    kernels::normal(y, tensor<int64_t>({3, 4}), 0, 1);
    kernels::dropout(z, x, tensor<int64_t>({5, 6}), 0.3);
    return std::vector<Tensor>{x, y, z};
  });
}

}  // namespace ringgrad::test::cpu_threads_test
