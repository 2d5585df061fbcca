// The CUDA kernels for elementwise operations and copies, on emulated devices, against plain functions in double.
#ifdef RINGGRAD_CUDA_EMULATED
#include <functional>
#include <limits>

#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Function1 = double (*)(double);
using Function2 = double (*)(double, double);

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// All layouts that a kernel distinguishes: one dense run, a run that cannot be read in vectors, and strides.
std::vector<Tensor> layouts_of(DType dtype, uint32_t seed, double low, double high) {
  return {random_tensor({7, 37}, dtype, seed, low, high), unaligned(random_tensor({3, 5}, dtype, seed, low, high)),
          transposed(random_tensor({6, 11}, dtype, seed, low, high)), random_tensor({0, 3}, dtype, seed, low, high)};
}

template <class F>
std::vector<double> mapped(F f, const std::vector<double>& a) {
  std::vector<double> y(a.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = f(a[i]);
  return y;
}
template <class F>
std::vector<double> mapped(F f, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> y(a.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = f(a[i], b[i]);
  return y;
}

// A few roundings in the type that values are computed in, and one to the dtype.
double tolerance(DType dtype) { return 2 * epsilon(dtype) + 16 * (dtype == DType::Float64 ? 0x1p-53 : 0x1p-24); }

constexpr DType kNumbers[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                              DType::Int64,   DType::Int32,   DType::UInt8};

}  // namespace

TEST_CASE("cuda: functions of one variable", "[quick][emulated]") {
  struct Row {
    const Kernel<void(const Tensor&, const Tensor&)>& kernel;
    Function1 f;
    double low, high;
  };
  const std::vector<Row> rows{
      {kernels::exp, [](double x) { return std::exp(x); }, -3, 3},
      {kernels::log, [](double x) { return std::log(x); }, 0.1, 3},
      {kernels::sqrt, [](double x) { return std::sqrt(x); }, 0, 4},
      {kernels::abs, [](double x) { return std::abs(x); }, -1, 1},
      {kernels::relu, [](double x) { return std::max(x, 0.0); }, -1, 1},
      {kernels::sigmoid, sigmoid_of, -5, 5},
      {kernels::tanh, [](double x) { return std::tanh(x); }, -3, 3},
      {kernels::silu, [](double x) { return x * sigmoid_of(x); }, -3, 3},
      {kernels::gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }, -3, 3},
  };
  for (const Row& row : rows)
    for (DType dtype : kFloating)
      for (const Tensor& x : layouts_of(dtype, 1, row.low, row.high)) {
        INFO(row.kernel.name() << " of " << x.shape() << " " << dtype);
        const Tensor y = empty_on_device(x.shape(), dtype);
        row.kernel(y, to_device(x));
        require_device_close(y, mapped(row.f, values(x)), tolerance(dtype));
      }
}

TEST_CASE("cuda: derivatives of functions of one variable", "[quick][emulated]") {
  struct Row {
    const Kernel<void(const Tensor&, const Tensor&, const Tensor&)>& kernel;
    Function2 f;  // of dy and the saved tensor
    double low, high;
  };
  const std::vector<Row> rows{
      {kernels::sqrt_backward, [](double dy, double y) { return dy / (2 * y); }, 0.5, 2},
      {kernels::abs_backward, [](double dy, double x) { return x < 0 ? -dy : dy; }, -1, 1},
      {kernels::relu_backward, [](double dy, double y) { return y > 0 ? dy : 0; }, -1, 1},
      {kernels::sigmoid_backward, [](double dy, double y) { return dy * y * (1 - y); }, 0, 1},
      {kernels::tanh_backward, [](double dy, double y) { return dy * (1 - y * y); }, -1, 1},
      {kernels::silu_backward, [](double dy, double x) { return dy * sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x))); },
       -3, 3},
      {kernels::gelu_backward,
       [](double dy, double x) {
         return dy * (0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI));
       },
       -3, 3},
  };
  for (const Row& row : rows)
    for (DType dtype : kFloating) {
      const Tensor dy = random_tensor({5, 9}, dtype, 2), saved = random_tensor({5, 9}, dtype, 3, row.low, row.high);
      INFO(row.kernel.name() << " " << dtype);
      const Tensor dx = empty_on_device({5, 9}, dtype);
      row.kernel(dx, to_device(dy), to_device(saved));
      require_device_close(dx, mapped(row.f, values(dy), values(saved)), tolerance(dtype));
    }
}

TEST_CASE("cuda: arithmetic of two tensors, for every number type", "[quick][emulated]") {
  struct Row {
    const Kernel<void(const Tensor&, const Tensor&, const Tensor&)>& kernel;
    Function2 f;
  };
  const std::vector<Row> rows{
      {kernels::add, [](double a, double b) { return a + b; }},
      {kernels::sub, [](double a, double b) { return a - b; }},
      {kernels::mul, [](double a, double b) { return a * b; }},
      {kernels::div, [](double a, double b) { return a / b; }},
      {kernels::maximum, [](double a, double b) { return std::max(a, b); }},
  };
  for (const Row& row : rows)
    for (DType dtype : kNumbers) {
      const bool floating = is_floating(dtype);
      const auto bs = layouts_of(dtype, 4, 1, floating ? 2 : 5);
      const auto as = layouts_of(dtype, 5, floating ? -1 : 5, 9);  // a >= b: no negative uint8
      for (size_t i = 0; i < as.size(); ++i) {
        INFO(row.kernel.name() << " of " << as[i].shape() << " " << dtype);
        const Tensor y = empty_on_device(as[i].shape(), dtype);
        row.kernel(y, to_device(as[i]), to_device(bs[i]));
        auto expected = mapped(row.f, values(as[i]), values(bs[i]));
        if (!floating) expected = mapped([](double v) { return std::trunc(v); }, expected);
        require_device_close(y, expected, floating ? tolerance(dtype) : 0);
      }
    }
}

TEST_CASE("cuda: a broadcast operand has stride 0", "[quick][emulated]") {
  const Tensor a = random_tensor({4, 6}, DType::Float32, 6), row = random_tensor({6}, DType::Float32, 7);
  const Tensor y = empty_on_device({4, 6}, DType::Float32);
  kernels::add(y, to_device(a), to_device(row).as_strided({4, 6}, {0, 1}, 0));
  std::vector<double> expected = values(a);
  const std::vector<double> added = values(row);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += added[i % 6];
  require_device_close(y, expected, tolerance(DType::Float32));
}

TEST_CASE("cuda: functions with parameters", "[quick][emulated]") {
  for (DType dtype : kFloating) {
    const Tensor x = random_tensor({8, 9}, dtype, 8), dy = random_tensor({8, 9}, dtype, 9);
    const Tensor t = random_tensor({8, 9}, dtype, 10, 0, 1), positive = random_tensor({8, 9}, dtype, 11, 0.2, 2);
    const auto check = [&](auto run, const std::vector<double>& expected) {
      const Tensor y = to_device(x);  // also in place
      run(y);
      require_device_close(y, expected, 2 * tolerance(dtype));
    };
    const Tensor dx_ = to_device(x), ddy = to_device(dy), dt = to_device(t), dp = to_device(positive);
    const std::vector<double> vx = values(x), vdy = values(dy), vt = values(t), vp = values(positive);
    check([&](const Tensor& y) { kernels::affine(y, y, 3, -0.5); }, mapped([](double v) { return 3 * v - 0.5; }, vx));
    check([&](const Tensor& y) { kernels::axpby(y, ddy, 2, -1); },
          mapped([](double g, double v) { return 2 * g - v; }, vdy, vx));
    check([&](const Tensor& y) { kernels::fill(y, 0.3); }, std::vector<double>(72, 0.3));
    check([&](const Tensor& y) { kernels::pow(y, dp, 2.5); }, mapped([](double v) { return std::pow(v, 2.5); }, vp));
    check([&](const Tensor& y) { kernels::pow(y, y, 2); }, mapped([](double v) { return v * v; }, vx));
    for (const double e : {0.0, 2.0, 2.5})
      check([&](const Tensor& y) { kernels::pow_backward(y, ddy, dp, e); },
            mapped([e](double g, double v) { return g * e * std::pow(v, e - 1); }, vdy, vp));
    check([&](const Tensor& y) { kernels::clamp(y, y, -0.25, 0.5); },
          mapped([](double v) { return std::clamp(v, -0.25, 0.5); }, vx));
    check([&](const Tensor& y) { kernels::clamp_backward(y, ddy, y, -0.25, 0.5); },
          mapped([](double g, double v) { return v >= -0.25 && v <= 0.5 ? g : 0; }, vdy, vx));
    check([&](const Tensor& y) { kernels::leaky_relu(y, y, 0.1); },
          mapped([](double v) { return v > 0 ? v : 0.1 * v; }, vx));
    check([&](const Tensor& y) { kernels::leaky_relu_backward(y, ddy, y, 0.1); },
          mapped([](double g, double v) { return v > 0 ? g : 0.1 * g; }, vdy, vx));
    check(
        [&](const Tensor& y) { kernels::bce_with_logits(y, y, dt); },
        mapped([](double v, double p) { return -p * std::log(sigmoid_of(v)) - (1 - p) * std::log(1 - sigmoid_of(v)); },
               vx, vt));
    check([&](const Tensor& y) { kernels::bce_with_logits_backward(y, ddy, dx_, dt); },
          [&] {
            auto expected = mapped([](double v, double p) { return sigmoid_of(v) - p; }, vx, vt);
            return mapped([](double a, double b) { return a * b; }, expected, vdy);
          }());
  }
}

TEST_CASE("cuda: maximum shares the gradient of equals, and equal compares", "[quick][emulated]") {
  const Tensor a = tensor<float>({1, 2, 3}), b = tensor<float>({1, 3, 2}), dy = tensor<float>({10, 20, 30});
  const Tensor da = empty_on_device({3}, DType::Float32), db = empty_on_device({3}, DType::Float32);
  kernels::maximum_backward(da, db, to_device(dy), to_device(a), to_device(b));
  REQUIRE(device_values(da) == std::vector<double>{5, 0, 30});
  REQUIRE(device_values(db) == std::vector<double>{5, 20, 0});
  const Tensor same = empty_on_device({3}, DType::Bool);
  kernels::equal(same, to_device(a), to_device(b));
  REQUIRE(device_values(same) == std::vector<double>{1, 0, 0});
}

TEST_CASE("cuda: NaN stays NaN", "[quick][emulated]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = to_device(tensor<float>({static_cast<float>(nan), 1})), y = empty_on_device({2}, DType::Float32);
  kernels::relu(y, x);
  require_device_close(y, {nan, 1}, 0);
  kernels::clamp(y, x, -2, 0.5);
  require_device_close(y, {nan, 0.5}, 0);
  kernels::maximum(y, x, to_device(tensor<float>({5, 5})));
  require_device_close(y, {nan, 5}, 0);
  kernels::maximum(y, to_device(tensor<float>({5, 5})), x);
  require_device_close(y, {nan, 5}, 0);
}

TEST_CASE("cuda: copies convert between all dtypes as the CPU does", "[quick][emulated]") {
  constexpr DType kAll[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                            DType::Int64,   DType::Int32,   DType::UInt8,    DType::Bool};
  for (DType from : kAll)
    for (DType to : kAll) {
      const Tensor x = random_tensor({9, 7}, from, 12, 0, 100);
      for (const Tensor& source : {x, transposed(x)}) {
        const Tensor y = empty_on_device(source.shape(), to), expected = empty(source.shape(), {.dtype = to});
        kernels::copy(expected, source);
        kernels::copy(y, to_device(source));
        INFO("from " << from << " to " << to);
        REQUIRE(device_values(y) == values(expected));
      }
    }
}

TEST_CASE("cuda: copies between host and device, devices, strides and layouts", "[quick][emulated]") {
  const Tensor image = random_tensor({2, 19, 3, 5}, DType::Float32, 13);
  const std::vector<double> expected = values(image);
  const Tensor blocked = empty(image.shape(), {.layout = Layout::ChannelBlocked});
  const Tensor channels_last = empty(image.shape(), {.layout = Layout::ChannelsLast});
  kernels::copy(blocked, image);
  kernels::copy(channels_last, image);
  const Device other("cuda:1");
  for (const Tensor& source : {image, blocked, channels_last})
    for (const Layout layout : {Layout::Strided, Layout::ChannelBlocked})
      for (const DType dtype : {DType::Float32, DType::Float64}) {
        const Tensor first = empty(image.shape(), {dtype, Device("cuda:0"), layout});
        const Tensor second = empty(image.shape(), {dtype, other, layout});
        const Tensor second_last = empty(image.shape(), {.device = other, .layout = Layout::ChannelsLast});
        const Tensor back = empty(image.shape(), {.dtype = dtype});
        copy_(first, source);        // host to device
        copy_(second_last, first);   // device to device, other strides and dtype
        copy_(second, second_last);  // on one device
        copy_(back, second);         // device to host
        REQUIRE(values(back) == expected);
        if (layout == Layout::ChannelBlocked) {  // the padding holds zeros
          const Tensor raw = to_host(second);
          double sum = 0;
          for (int64_t i = 0; i < raw.flat_numel(); ++i)
            sum += dtype == DType::Float32 ? raw.data<float>()[i] : raw.data<double>()[i];
          double wanted = 0;
          for (double value : expected) wanted += value;
          REQUIRE(std::abs(sum - wanted) < 1e-4);
        }
      }
}
#endif
