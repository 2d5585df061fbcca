// The CUDA kernels for random numbers, indexing and layer normalisation, on emulated devices.
#ifdef RINGGRAD_CUDA_EMULATED
#include "tests/emulator_kernels.h"
#include "core/random.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

DType wide(DType dtype) { return dtype == DType::Float64 ? dtype : DType::Float32; }

}  // namespace

TEST_CASE("cuda: every kernel of the contract has an implementation", "[quick][emulated]") {
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next()) {
    INFO(kernel->name());
    CHECK(kernel->has(DeviceType::CUDA, Provider::Native));
  }
}

TEST_CASE("cuda: random numbers are those of the CPU", "[quick][emulated]") {
  const Tensor state = tensor<int64_t>({42, 1000}), device_state = to_device(state);
  for (DType dtype : kFloating) {
    const Tensor x = empty({1003}, {.dtype = dtype}), y = empty_on_device({1003}, dtype);
    kernels::uniform(x, state, -2, 3);
    kernels::uniform(y, device_state, -2, 3);
    REQUIRE(device_values(y) == values(x));
    kernels::normal(x, state, 1, 2);
    kernels::normal(y, device_state, 1, 2);
    require_device_close(y, values(x), 2 * epsilon(dtype));
    const Tensor input = random_tensor({1003}, dtype, 1);
    for (const double p : {0.0, 0.3, 1.0}) {
      kernels::dropout(x, input, state, p);
      kernels::dropout(y, to_device(input), device_state, p);
      REQUIRE(device_values(y) == values(x));
    }
  }
  const Tensor snapshot = empty_on_device({2}, DType::Int64);
  kernels::advance_random_state(snapshot, device_state, 7);
  REQUIRE(device_values(snapshot) == std::vector<double>{42, 1000});
  REQUIRE(device_values(device_state) == std::vector<double>{42, 1007});
}

TEST_CASE("cuda: rows and elements by index", "[quick][emulated]") {
  const int64_t O = 2, N = 5, M = 4, I = 3;
  const std::vector<int64_t> places{4, 0, 4, 9};  // the last one is outside
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Int64, DType::UInt8}) {
    const Tensor x = random_tensor({O, N, I}, dtype, 2, 0, 50), dy = random_tensor({O, M, I}, dtype, 3, 0, 50);
    const Tensor index = tensor(places), per_element = empty({O, M, I}, {.dtype = DType::Int64});
    for (int64_t e = 0; e < O * M * I; ++e) per_element.data<int64_t>()[e] = places[(e / I + e % I) % M];
    const auto vx = values(x), vdy = values(dy);
    for (const bool elements : {false, true}) {
      const auto place = [&](int64_t o, int64_t j, int64_t i) {
        return elements ? per_element.data<int64_t>()[(o * M + j) * I + i] : places[j];
      };
      const Tensor which = to_device(elements ? per_element : index), y = to_device(dy), dx = to_device(x);
      (elements ? kernels::gather : kernels::index_select)(y, to_device(x), which);
      std::vector<double> read = vdy, added = vx;
      for (int64_t o = 0; o < O; ++o)
        for (int64_t j = 0; j < M; ++j)
          for (int64_t i = 0; i < I; ++i) {
            const int64_t n = place(o, j, i);
            if (n >= N) continue;
            read[(o * M + j) * I + i] = vx[(o * N + n) * I + i];
            added[(o * N + n) * I + i] += vdy[(o * M + j) * I + i];
          }
      REQUIRE(device_values(y) == read);
      (elements ? kernels::scatter_add : kernels::index_add)(dx, to_device(dy), which);
      if (dtype == DType::UInt8)
        for (double& v : added) v = std::fmod(v, 256);
      require_device_close(dx, added, sum_tolerance(dtype, M));
    }
  }
}

TEST_CASE("cuda: layer normalisation", "[quick][emulated]") {
  for (DType dtype : kFloating)
    for (const int64_t c : {3, 100, 1300})
      for (const bool affine : {true, false}) {
        const int64_t n = 5;
        const double eps = 1e-3;
        const Tensor x = random_tensor({n, c}, dtype, 4, -2, 3), dy = random_tensor({n, c}, dtype, 5);
        const Tensor w = random_tensor({c}, wide(dtype), 6, 0.5, 2), b = random_tensor({c}, wide(dtype), 7);
        const auto vx = values(x), vdy = values(dy);
        const auto vw = affine ? values(w) : std::vector<double>(c, 1),
                   vb = affine ? values(b) : std::vector<double>(c);
        std::vector<double> y, dx, mean(n), rstd(n), dw(c), db(c);
        for (int64_t i = 0; i < n; ++i) {
          double var = 0, mean_g = 0, mean_g_xhat = 0;
          const auto at = [&](int64_t j) { return static_cast<size_t>(i * c + j); };
          for (int64_t j = 0; j < c; ++j) mean[i] += vx[at(j)] / c;
          for (int64_t j = 0; j < c; ++j) var += (vx[at(j)] - mean[i]) * (vx[at(j)] - mean[i]) / c;
          rstd[i] = 1 / std::sqrt(var + eps);
          const auto xhat = [&](int64_t j) { return (vx[at(j)] - mean[i]) * rstd[i]; };
          for (int64_t j = 0; j < c; ++j) {
            mean_g += vdy[at(j)] * vw[j] / c;
            mean_g_xhat += vdy[at(j)] * vw[j] * xhat(j) / c;
          }
          for (int64_t j = 0; j < c; ++j) {
            y.push_back(xhat(j) * vw[j] + vb[j]);
            dx.push_back(rstd[i] * (vdy[at(j)] * vw[j] - mean_g - xhat(j) * mean_g_xhat));
            dw[j] += vdy[at(j)] * xhat(j);
            db[j] += vdy[at(j)];
          }
        }
        INFO(dtype << ", rows of " << c);
        const Tensor weight = affine ? to_device(w) : Tensor(), bias = affine ? to_device(b) : Tensor();
        const Tensor out = empty_on_device({n, c}, dtype), out_mean = empty_on_device({n}, wide(dtype));
        const Tensor out_rstd = empty_on_device({n}, wide(dtype)), device_x = to_device(x);
        kernels::layer_norm(out, out_mean, out_rstd, device_x, weight, bias, eps);
        const double close = 10 * sum_tolerance(dtype, c);
        require_device_close(out, y, close);
        require_device_close(out_mean, mean, 10 * sum_tolerance(wide(dtype), c));
        require_device_close(out_rstd, rstd, 10 * sum_tolerance(wide(dtype), c));
        const Tensor dweight = affine ? empty_on_device({c}, wide(dtype)) : Tensor();
        const Tensor dbias = empty_on_device({c}, wide(dtype));
        kernels::layer_norm_backward(out, dweight, dbias, to_device(dy), device_x, out_mean, out_rstd, weight);
        require_device_close(out, dx, close);
        require_device_close(dbias, db, close);
        if (affine) require_device_close(dweight, dw, close);
      }
}
#endif
