// Tests every operation at both ends of its dtype's range, and that 16-bit results are rounded
// once.
//
// The reference is the same operation in float64, on the same numbers. Numbers of the narrower
// types lie in the middle of float64's range, where op_test compares results with plain loops and
// gradients with finite differences. float64 itself is tested with powers of two, which pass
// through an operation: f(2^k x) = 2^k f(x).
//
// One file, because every row needs the same references.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test::dtype_ranges_test {

namespace {

struct Format {
  double largest;
  double epsilon;
  // the exponents of the largest and of the smallest normal number
  int top;
  int bottom;

  double smallest() const { return std::ldexp(1, bottom); }
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::Float16: return {65504, 0x1p-10, 15, -14};
    case DType::BFloat16: return {0x1.fep127, 0x1p-7, 127, -126};
    default: return {0x1.fffffep127, 0x1p-23, 127, -126};
  }
}

double rounded(double value, DType dtype) {
  const float narrow = static_cast<float>(value);
  if (dtype == DType::Float16) return static_cast<float>(float16(narrow));
  if (dtype == DType::BFloat16) return static_cast<float>(bfloat16(narrow));
  return narrow;
}

// ---- operations made of others, which have no row in op_specs() ---------------------------------

OpSpec composed(const std::string& name, const std::function<Tensor(const Tensors&)>& run,
                std::vector<Sample> samples, int64_t terms) {
  OpSpec spec;
  spec.name = name;
  spec.run = [run](const Tensors& in) { return Tensors{run(in)}; };
  spec.samples = std::move(samples);
  spec.terms = terms;
  return spec;
}

std::vector<OpSpec> composed_specs() {
  std::vector<OpSpec> specs;
  const std::vector<Sample> rows = {{uniform({3, 5})}, {uniform({2, 3, 4})}};
  const auto of_x = [&](const std::string& name, Tensor (*run)(const Tensor&), int64_t terms) {
    specs.push_back(composed(
        name, [run](const Tensors& in) { return run(in[0]); }, rows, terms));
  };
  of_x(
      "std", [](const Tensor& x) { return x.std(); }, 24);
  of_x(
      "std of columns", [](const Tensor& x) { return x.std({0}, 0); }, 3);
  of_x(
      "var of columns", [](const Tensor& x) { return var(x, {0}); }, 3);
  of_x(
      "norm 1", [](const Tensor& x) { return norm(x, 1); }, 24);
  of_x(
      "norm 2", [](const Tensor& x) { return norm(x); }, 24);
  of_x(
      "norm 2 of rows", [](const Tensor& x) { return norm(x, 2, {1}, true); }, 5);
  of_x(
      "norm 3", [](const Tensor& x) { return norm(x, 3, {1}); }, 5);
  of_x(
      "norm 0.5", [](const Tensor& x) { return norm(x, 0.5, {1}); }, 5);
  of_x(
      "norm inf", [](const Tensor& x) { return norm(x, INFINITY); }, 1);
  of_x(
      "logsumexp", [](const Tensor& x) { return logsumexp(x, -1); }, 5);
  of_x(
      "group_norm without weight", [](const Tensor& x) { return group_norm(x, 1); }, 24);
  specs.push_back(composed(
      "group_norm", [](const Tensors& in) { return group_norm(in[0], 2, in[1], in[2]); },
      {{uniform({2, 4, 3, 2}), uniform({4}, 0.5, 2), uniform({4})},
       {uniform({3, 8}), uniform({8}, 0.5, 2), uniform({8})}},
      24));
  const auto images = [&](const std::string& name, UpsampleOptions options) {
    specs.push_back(composed(
        name,
        [options](const Tensors& in) {
          return upsample(in[0], {5, 7}, options);
        },
        {{uniform({1, 2, 3, 4})}}, 16));
  };
  images("nearest", {});
  images("bilinear", {.mode = UpsampleMode::Bilinear});
  images("bilinear between corners", {.mode = UpsampleMode::Bilinear, .align_corners = true});
  for (const Reduction reduction : {Reduction::Mean, Reduction::None}) {
    const std::string end = reduction == Reduction::Mean ? ", mean" : ", none";
    // Squares overflow below beta, and the difference times beta above it, but not their quotients.
    specs.push_back(composed(
        "smooth_l1_loss of a large beta" + end,
        [=](const Tensors& in) { return smooth_l1_loss(in[0], in[1], 1e30, reduction); },
        {{uniform({3, 5}), uniform({3, 5})}}, 15));
    for (const bool logarithms : {false, true})
      specs.push_back(composed(
          str("kl_div", logarithms ? " of logarithms" : "", end),
          [=](const Tensors& in) { return kl_div(in[0], in[1], reduction, logarithms); },
          {{uniform({3, 5}, -3, -0.5),
            logarithms ? uniform({3, 5}, -3, -0.5) : uniform({3, 5}, 0.1, 1)}},
          15));
  }
  specs.push_back(composed(
      "conv_transpose2d with a bias",
      [](const Tensors& in) {
        return conv_transpose2d(in[0], in[1], in[2], {.stride = 2, .padding = 1});
      },
      {{uniform({2, 3, 4, 4}), uniform({3, 2, 4, 4}), uniform({2}, -30, 30)}}, 48));
  specs.push_back(composed(
      "conv_transpose2d of a pixel",
      [](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2]); },
      {{uniform({2, 3, 1, 1}), uniform({3, 2, 4, 4}), uniform({2}, -30, 30)}}, 48));
  specs.push_back(composed(
      "x / row", [](const Tensors& in) { return in[0] / in[1]; },
      {{uniform({40, 3}), uniform({3}, 0.5, 2)}}, 40));
  specs.push_back(composed(
      "x · row", [](const Tensors& in) { return in[0] * in[1]; },
      {{uniform({40, 3}), uniform({3}, 0.5, 2)}}, 40));
  specs.push_back(composed(
      "0.1 / x", [](const Tensors& in) { return 0.1 / in[0]; }, {{uniform({3, 5}, 0.5, 2)}}, 1));
  return specs;
}

std::vector<OpSpec> all_specs() {
  std::vector<OpSpec> all = composed_specs();
  for (const OpSpec& spec : op_specs())
    if (!spec.bare_kernel && spec.dtypes == kFloatingDTypes) all.push_back(spec);
  return all;
}

bool begins_with(const std::string& name, std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings)
    if (name.rfind(beginning, 0) == 0) return true;
  return false;
}

// Returns true if the results are sums of products of two inputs.
bool multiplies(const OpSpec& spec) { return begins_with(spec.name, {"matmul", "linear", "conv"}); }

// ---- running them -------------------------------------------------------------------------------

struct Scenario {
  std::string name;
  std::function<double(double value, int64_t place)> number;
  double dy = 1;
};

// Results, followed by gradients. Empty if the operation refuses such numbers.
using Numbers = std::vector<std::vector<double>>;

Numbers evaluate(const OpSpec& spec, const Sample& sample, const Scenario& scenario, DType tested,
                 DType dtype, Device device) {
  Tensors inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Input& input = sample.inputs[i];
    Array values = values_of(input, static_cast<int>(i), tested);
    // Weights get other numbers: a filter that is not finite also meets the zeros around images,
    // and a weight of a norm meets sums of both signs.
    const bool is_weight =
        i > 0 && (multiplies(spec) || begins_with(spec.name, {"layer_norm", "group_norm"}));
    const int64_t first = is_weight ? 1000 : static_cast<int64_t>(i);
    for (int64_t k = 0; k < values.numel() && !input.dtype; ++k)
      values.values[k] = rounded(scenario.number(values.values[k], first + k), tested);
    inputs.push_back(arrange(values, input.dtype_for(dtype), device, Arrangement::Contiguous));
    if (input.wants_grad && is_floating(inputs.back().dtype())) inputs.back().set_requires_grad();
  }
  Numbers numbers;
  try {
    const Tensors outputs = spec.run(inputs);
    for (const Tensor& y : outputs) numbers.push_back(to_vector<double>(y));
    for (const Tensor& y : outputs) {
      if (!y.requires_grad()) continue;
      Array dy = values_of(whole(y.shape(), 1, 25), 100, DType::Float64);
      for (double& v : dy.values) v = rounded((v - 12.5) / 16 * scenario.dy, tested);
      y.backward(arrange(dy, y.dtype(), device, Arrangement::Contiguous));
    }
  } catch (const Error&) {
    return {};
  }
  for (const Tensor& x : inputs)
    if (x.requires_grad() && x.grad()) numbers.push_back(to_vector<double>(x.grad()));
  return numbers;
}

struct Bound {
  Format format;
  double relative;
  double absolute;
};

// A number beyond the range may be infinite, or NaN if infinities meet. So may a sum that is so
// large that its parts may be beyond the range.
bool agrees(double got, double want, bool sums, double scale, const Bound& bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  const double limit =
      sums ? bound.format.largest / 16 : bound.format.largest * (1 - bound.relative);
  if (std::abs(want) > limit && !std::isfinite(got)) return true;
  return std::abs(got - want) <= bound.relative * scale + bound.absolute;
}

std::string disagreement(const std::vector<double>& got, const std::vector<double>& want, bool sums,
                         const Bound& bound) {
  if (got.size() != want.size()) return str(got.size(), " numbers, expected ", want.size());
  double largest = 0;
  for (const double w : want)
    if (std::abs(w) <= bound.format.largest) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i)
    if (!agrees(got[i], want[i], sums, sums ? largest : std::abs(want[i]), bound))
      return str("number ", i, " is ", got[i], ", expected ", want[i]);
  return "";
}

struct DirectConvolutions {
  DirectConvolutions() { set_conv_algorithm(ConvAlgorithm::Direct); }
  ~DirectConvolutions() { set_conv_algorithm(ConvAlgorithm::Auto); }
};

std::vector<Scenario> scenarios(const Format& format, int64_t terms) {
  const auto times = [format](int exponent) {
    return [=](double v, int64_t) {
      return std::isinf(v) ? v
                           : std::clamp(std::ldexp(v, exponent), -format.largest, format.largest);
    };
  };
  const auto one_is = [](double special) {
    return [=](double v, int64_t i) { return i == 1 ? special : v; };
  };
  const int top = format.top - 3 - std::ilogb(static_cast<double>(terms));
  return {{"near the largest number", times(top)},
          {"squares overflow", times(format.top / 2 + 4)},
          {"squares vanish", times(format.bottom / 2 - 4)},
          {"near the smallest normal number", times(format.bottom + 1)},
          {"subnormal", times(format.bottom - 3)},
          {"infinity beside finite", one_is(INFINITY)},
          {"minus infinity beside finite", one_is(-INFINITY)},
          {"NaN beside finite", one_is(NAN)},
          {"large gradient", times(0), std::ldexp(1, format.top - 12)},
          {"small gradient", times(0), std::ldexp(1, format.bottom + 4)}};
}

void check_ranges(const OpSpec& spec, Device device) {
  // One of batch norm's results is a variance in float32: it is infinite if it does not fit, as in
  // PyTorch.
  if (begins_with(spec.name, {"batch_norm"})) return;
  // These are several operations in a row, with intermediate results in the dtype.
  if (begins_with(spec.name,
                  {"operators with numbers", "x · x + x", "lstm_layer", "gru_layer", "rnn_layer"}))
    return;
  const DirectConvolutions direct;
  // Functions that approach a limit, and their slopes, are as precise as the limit. So is a sum
  // whose terms cancel.
  const bool approaches =
      begins_with(spec.name, {"sigmoid", "tanh",    "gelu",        "silu",  "elu",       "softplus",
                              "binary",  "softmax", "log_softmax", "cross", "logsumexp", "log1p",
                              "sin",     "cos",     "kl_div",      "mse",   "huber",     "smooth",
                              "l1",      "mish",    "hardswish"});
  const bool attends = spec.name.find("attention") != std::string::npos;
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
    const Format format = format_of(dtype);
    for (const Scenario& scenario : scenarios(format, spec.terms)) {
      // Scores are intermediate results, which may be infinite, and a key that no query uses need
      // not be read.
      if (attends &&
          (scenario.name == "near the largest number" || scenario.name == "squares overflow" ||
           scenario.name.ends_with("beside finite")))
        continue;
      // Parts of the sum may be infinite although the sum is not.
      if (multiplies(spec) && scenario.name == "squares overflow") continue;
      // Here the sum of the class weights, or of their products with the losses, is infinite.
      if (begins_with(spec.name, {"cross", "nll"}) &&
          (scenario.name == "near the largest number" || scenario.name == "squares overflow"))
        continue;
      for (size_t i = 0; i < spec.samples.size(); ++i) {
        const Sample& sample = spec.samples[i];
        if (sample.is_empty() || sample.is_large()) continue;
        INFO(spec.name << ", sample " << i << ", " << device << ' ' << dtype << ", "
                       << scenario.name);
        const Numbers want = evaluate(spec, sample, scenario, dtype, DType::Float64, {});
        const Numbers got = evaluate(spec, sample, scenario, dtype, dtype, device);
        // Refused by the CPU alone, which can look at the numbers.
        if (want.empty() && device.is_cuda()) continue;
        REQUIRE(got.size() == want.size());
        const double relative =
            format.epsilon * (4 + 2 * std::sqrt(static_cast<double>(spec.terms)));
        const Bound bound = {format, relative,
                             8 * format.smallest() * std::max(1.0, scenario.dy) +
                                 (approaches ? relative * scenario.dy : 0)};
        for (size_t k = 0; k < want.size(); ++k) {
          INFO("result or gradient " << k);
          CHECK(disagreement(got[k], want[k], spec.terms > 1, bound) == "");
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("operations at the ends of their dtype's range", "[ops][quick]") {
  for (const OpSpec& spec : all_specs()) {
    DYNAMIC_SECTION(spec.name) { check_ranges(spec, {}); }
  }
}

TEST_CASE("operations on cuda at the ends of their dtype's range", "[ops][cuda]") {
  if (device_count(DeviceType::CUDA) == 0) return;
  for (const OpSpec& spec : all_specs()) {
    DYNAMIC_SECTION(spec.name) { check_ranges(spec, Device("cuda")); }
  }
}

// The bound is half a unit in the last place for the one rounding, plus the error of a computation
// in float32.
TEST_CASE("results and gradients of 16 bits are rounded once", "[ops][quick]") {
  const DirectConvolutions direct;
  for (const OpSpec& spec : all_specs()) {
    // These are several operations in a row.
    if (begins_with(spec.name, {"batch_norm of conv2d", "operators with numbers", "x · x + x",
                                "matmul of repeated", "lstm_layer", "gru_layer", "rnn_layer"}))
      continue;
    // The products of its weights take them in 16 bits, as in PyTorch.
    if (spec.name.find("attention") != std::string::npos) continue;
    // These derivatives are computed from the saved 16-bit results, as in PyTorch.
    if (begins_with(spec.name,
                    {"sigmoid", "tanh", "softmax", "log_softmax", "exp", "sqrt", "pow 0.5"}))
      continue;
    DYNAMIC_SECTION(spec.name) {
      for (const DType dtype : {DType::BFloat16, DType::Float16})
        for (size_t i = 0; i < spec.samples.size(); ++i) {
          const Sample& sample = spec.samples[i];
          if (sample.is_empty() || sample.is_large() || !sample.smooth) continue;
          INFO(spec.name << ", sample " << i << ", " << dtype);
          const Scenario plain = {"", [](double v, int64_t) { return v; }};
          const Numbers want = evaluate(spec, sample, plain, dtype, DType::Float64, {});
          const Numbers got = evaluate(spec, sample, plain, dtype, dtype, {});
          REQUIRE(got.size() == want.size());
          const double float32 = 0x1p-23 * (4 + 2 * std::sqrt(static_cast<double>(spec.terms)));
          for (size_t k = 0; k < want.size(); ++k) {
            INFO("result or gradient " << k);
            double largest = 1;
            for (const double w : want[k]) largest = std::max(largest, std::abs(w));
            const Format format = format_of(dtype);
            const Bound bound = {format, format.epsilon / 2 + float32,
                                 float32 * largest + format.smallest() * format.epsilon};
            CHECK(disagreement(got[k], want[k], false, bound) == "");
          }
        }
    }
  }
}

// The sum of all terms is a number, though sums of some of them are not: in rows, pieces of a long
// row and columns. The third row's sum is beyond the range.
TEST_CASE("sums and means that overflow on the way are those of float64", "[ops][quick]") {
  std::vector<Device> devices = {{}};
  if (device_count(DeviceType::CUDA) > 0) devices.emplace_back("cuda");
  for (const Device device : devices)
    for (const DType dtype : {DType::Float32, DType::BFloat16})
      for (const Shape& shape :
           {Shape{3, 4}, Shape{3, 300}, Shape{3, 20000}, Shape{300, 3}, Shape{20000, 3}}) {
        INFO(device << ' ' << dtype << ' ' << shape);
        const int reduced = shape[0] == 3 ? 1 : 0;
        const int64_t n = shape[reduced];
        Array x = values_of(whole(shape, -8, 8), 0, dtype);
        const double largest = format_of(dtype).largest;
        for (int64_t k = 0; k < 3; ++k)
          for (int64_t i = 0; i < n; ++i)
            if (const int64_t place = reduced == 1 ? k * n + i : i * 3 + k; i < n / 2)
              x.values[place] = k == 0 ? largest : -largest;
            else if (k < 2)
              x.values[place] = k == 0 ? -largest : largest;
        const auto agrees_with_float64 = [&](Tensor (*f)(const Tensor&, const Dims&)) {
          const Tensor wide = arrange(x, DType::Float64, {}, Arrangement::Contiguous);
          const Tensor narrow = arrange(x, dtype, device, Arrangement::Contiguous);
          const auto want = to_vector<double>(f(wide, {reduced}));
          const auto got = to_vector<double>(f(narrow, {reduced}));
          for (size_t i = 0; i < want.size(); ++i) {
            if (std::abs(want[i]) > largest)
              CHECK(got[i] == std::copysign(INFINITY, want[i]));
            else
              CHECK(std::abs(got[i] - want[i]) <= format_of(dtype).epsilon * std::abs(want[i]));
          }
        };
        agrees_with_float64([](const Tensor& t, const Dims& dims) { return sum(t, dims); });
        agrees_with_float64([](const Tensor& t, const Dims& dims) { return mean(t, dims); });
      }
}

// Several rows are added at once, to a total that they must not be added without.
TEST_CASE("sums by columns of float64 do not overflow where those by rows do not", "[ops][quick]") {
  Tensor x = zeros({8, 3}, {.dtype = DType::Float64});
  for (const auto& [row, value] : {std::pair(0, -1e308), std::pair(4, 1e308), std::pair(5, 1e308)})
    x.data<double>()[row * 3] = value;
  CHECK(to_vector<double>(sum(x, {0}))[0] == 1e308);
  CHECK(to_vector<double>(sum(contiguous(transpose(x, 0, 1)), {1}))[0] == 1e308);
}

// Two numbers are at one end of the range and one at the other. The sum overflows, and so do
// differences and the variance, but neither the mean nor the normalised values. If float32 does not
// hold the variance, float64 does; beyond float64 a power of two helps (PyTorch has the bias or
// NaN). Only the CPU looks at the variances: y is NaN on CUDA.
TEST_CASE("batch norm at the end of a dtype's range", "[ops][quick]") {
  const DirectConvolutions direct;
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (const Shape& shape : {Shape{8, 3}, Shape{16, 16}, Shape{2, 3, 4}, Shape{2, 16, 4, 4}}) {
      INFO(dtype << ' ' << shape);
      const bool is_widest = dtype == DType::Float64;
      const double largest = is_widest ? DBL_MAX : format_of(dtype).largest;
      const double unit = is_widest ? 0x1p-600 : 1;  // so that the test's own variance is a number
      Array numbers = values_of(uniform(shape), 0, dtype);
      const int64_t channels = shape[1];
      const int64_t pixels = numbers.numel() / shape[0] / channels;
      const int64_t count = numbers.numel() / channels;
      const auto place = [&](int64_t c, int64_t i) {
        return (i / pixels * channels + c) * pixels + i % pixels;
      };
      std::vector<double> means(static_cast<size_t>(channels));
      std::vector<double> want(static_cast<size_t>(numbers.numel()), -1.5);
      for (int64_t c = 0; c < channels; ++c) {
        numbers.values[place(c, 1)] = numbers.values[place(c, 2)] = -largest;
        if (c == 1) numbers.values[place(c, 2)] = largest;
        double var = 0;
        for (int64_t i = 0; i < count; ++i)
          means[c] += numbers.values[place(c, i)] / static_cast<double>(count);
        const auto apart = [&](int64_t i) {
          return numbers.values[place(c, i)] * unit - means[c] * unit;
        };
        for (int64_t i = 0; i < count; ++i)
          var += std::pow(apart(i), 2) / static_cast<double>(count);
        for (int64_t i = 0; i < count; ++i) want[place(c, i)] += 2 * apart(i) / std::sqrt(var);
      }
      const Tensor x = arrange(numbers, dtype, {}, Arrangement::Contiguous);
      x.set_requires_grad();
      const TensorOptions per_channel = {is_widest ? dtype : DType::Float32};
      const Tensor weight = full({channels}, 2, per_channel);
      const Tensor bias = full({channels}, -1.5, per_channel);
      const Tensor mean = zeros({channels}, per_channel);
      const Tensor var = ones_like(mean);
      const Tensor y = batch_norm(x, weight, bias, mean, var, {.training = true, .momentum = 1});
      const auto values = to_vector<double>(y);
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(std::abs(values[i] - want[i]) <= 4 * format_of(dtype).epsilon);
      const auto got = to_vector<double>(mean);
      for (int64_t c = 0; c < channels; ++c)
        CHECK(std::abs(got[c] - means[c]) <= 0x1p-20 * largest);
      // The slope, a deviation's inverse, is nearly 0.
      y.backward(0x1p-6 *
                 arrange(values_of(uniform(shape), 1, dtype), dtype, {}, Arrangement::Contiguous));
      for (const double slope : to_vector<double>(x.grad()))
        CHECK(std::abs(slope) <= 64 / std::sqrt(largest) / std::sqrt(largest));
    }
}

// The weight divided by the deviation is beyond float32's range; their product with x - mean is
// not.
TEST_CASE("batch norm of a large weight and a small deviation", "[ops][quick]") {
  const Array numbers = values_of(uniform({8, 3}, -0x1p-10, 0x1p-10), 0, DType::Float32);
  for (const bool training : {true, false}) {
    const Tensor x = arrange(numbers, DType::Float32, {}, Arrangement::Contiguous);
    const Tensor mean = zeros({3});
    const Tensor var = full({3}, 0x1p-20);
    const Tensor y =
        batch_norm(x, full({3}, 0x1p124), {}, mean, var, {.training = training, .eps = 0});
    const auto values = to_vector<double>(y);
    for (int64_t c = 0; c < 3; ++c) {
      double center = 0;
      double square = training ? 0 : 0x1p-20;
      for (int64_t i = c; i < 24 && training; i += 3) center += numbers.values[i] / 8;
      for (int64_t i = c; i < 24 && training; i += 3)
        square += std::pow(numbers.values[i] - center, 2) / 8;
      for (int64_t i = c; i < 24; i += 3) {
        const double want = (numbers.values[i] - center) / std::sqrt(square) * 0x1p124;
        CHECK(std::abs(values[i] - want) <= 0x1p-20 * 0x1p124);
      }
    }
  }
}

// An output pixel that coincides with an input pixel takes nothing from the neighbours, whose
// weight is 0, and gives them nothing. This must hold although 0 times infinity is NaN.
TEST_CASE("bilinear upsampling beside infinity", "[ops][quick]") {
  std::vector<Device> devices = {{}};
  if (device_count(DeviceType::CUDA) > 0) devices.emplace_back("cuda");
  for (const Device device : devices)
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
      INFO(device << ' ' << dtype);
      const auto run = [&](double center, double slope) {
        const Tensor x =
            to(to(tensor<double>({1, 2, 3, 4, center, 6, 7, 8, 9}, {1, 1, 3, 3}), dtype), device);
        x.set_requires_grad();
        const Tensor y =
            upsample(x, {5, 5}, {.mode = UpsampleMode::Bilinear, .align_corners = true});
        std::vector<double> dy(25, 1);
        dy[12] = slope;
        y.backward(to(to(tensor(dy, {1, 1, 5, 5}), dtype), device));
        return Numbers{to_vector<double>(y), to_vector<double>(x.grad())};
      };
      const Numbers plain = run(5, 1);
      const Numbers broken = run(INFINITY, INFINITY);
      for (const size_t pixel : {0, 2, 4, 10, 14, 20, 22, 24})
        CHECK(broken[0][pixel] == plain[0][pixel]);
      CHECK(broken[0][12] == INFINITY);
      for (size_t i = 0; i < 9; ++i) CHECK(broken[1][i] == (i == 4 ? INFINITY : plain[1][i]));
    }
}

// A value that is always normalised to 0, or has the probability 1, has no gradient, to the last
// digit.
TEST_CASE("rows of one number and losses of one class have gradients of 0", "[ops][quick]") {
  std::vector<Device> devices = {{}};
  if (device_count(DeviceType::CUDA) > 0) devices.emplace_back("cuda");
  for (const Device device : devices)
    for (const DType dtype : {DType::Float32, DType::Float64}) {
      INFO(device << ' ' << dtype);
      const auto made = [&](const Shape& shape, int seed, double low) {
        return arrange(values_of(uniform(shape, low, 2), seed, dtype), dtype, device,
                       Arrangement::Contiguous);
      };
      const auto check_gradient = [&](const Tensor& x, const Tensor& y) {
        y.backward(made(y.shape(), 9, -2));
        for (const double slope : to_vector<double>(x.grad())) CHECK(slope == 0);
      };
      Tensor x = made({40, 1}, 0, -2);
      x.set_requires_grad();
      check_gradient(x, layer_norm(x, {1}, made({1}, 1, -2), made({1}, 2, -2)));
      Tensor channels = made({10, 4}, 3, -2);
      channels.set_requires_grad();
      check_gradient(channels, group_norm(channels, 4, made({4}, 4, -2), made({4}, 5, -2)));
      for (const double smoothing : {0.0, 0.1}) {
        Tensor logits = made({40, 1}, 6, -2);
        logits.set_requires_grad();
        check_gradient(logits, cross_entropy(logits, zeros({40}, {DType::Int64, device}),
                                             {.weight = made({1}, 7, 0.1),
                                              .label_smoothing = smoothing,
                                              .reduction = Reduction::None}));
      }
    }
}

// The sum of such a row overflows; its deviations are 0, so the result is the bias.
TEST_CASE("rows of equal numbers at the end of the range", "[ops][quick]") {
  std::vector<Device> devices = {{}};
  if (device_count(DeviceType::CUDA) > 0) devices.emplace_back("cuda");
  for (const Device& device : devices)
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
      INFO(device << ' ' << dtype);
      const double largest = dtype == DType::Float64 ? 0x1p1023 : 0x1p127;
      const Tensor x = full({3, 16}, largest, {dtype, device});
      const Tensor weight = full({16}, 2, {dtype, device});
      const Tensor bias = full({16}, -1.5, {dtype, device});
      for (const Tensor& y : {layer_norm(x, {16}, weight, bias), group_norm(x, 2, weight, bias)})
        for (const double value : to_vector<double>(y)) CHECK(value == -1.5);
    }
}

static Tensor double_of(const Shape& shape, int seed) {
  return arrange(values_of(uniform(shape), seed, DType::Float64), DType::Float64, {},
                 Arrangement::Contiguous);
}
static Tensor image_of(const Tensor& x) { return reshape(x, {1, 2, 4, 3}); }

// Powers of two pass exactly through these operations, unless a number becomes subnormal.
TEST_CASE("operations of float64 at the ends of its range", "[ops][quick]") {
  struct Homogeneous {
    const char* name;
    Tensor (*run)(const Tensor&);
    int degree;  // f(2^k x) = 2^(k degree) f(x)
  };
  const Homogeneous operations[] = {
      {"std", [](const Tensor& x) { return x.std({1}); }, 1},
      {"std of all", [](const Tensor& x) { return x.std(); }, 1},
      {"norm 2", [](const Tensor& x) { return norm(x, 2, {0}); }, 1},
      {"norm 3", [](const Tensor& x) { return norm(x, 3, {1}); }, 1},
      {"norm 0.5", [](const Tensor& x) { return norm(x, 0.5, {1}); }, 1},
      {"norm inf", [](const Tensor& x) { return norm(x, INFINITY, {1}); }, 1},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x, {6}, {}, {}, 0); }, 0},
      {"group_norm", [](const Tensor& x) { return group_norm(x, 2, {}, {}, 0); }, 0},
      {"conv2d",
       [](const Tensor& x) {
         return conv2d(image_of(x), double_of({3, 2, 3, 3}, 1), {}, {.padding = 1});
       },
       1},
      {"conv2d of groups",
       [](const Tensor& x) {
         return conv2d(image_of(x), double_of({4, 1, 2, 3}, 1), {}, {.stride = 2, .groups = 2});
       },
       1},
      {"conv1d",
       [](const Tensor& x) {
         return conv1d(reshape(x, {2, 2, 6}), double_of({3, 2, 3}, 1));
       },
       1},
      {"conv_transpose2d",
       [](const Tensor& x) {
         return conv_transpose2d(image_of(x), double_of({2, 3, 3, 2}, 1), {}, {.stride = 2});
       },
       1},
      {"max_pool2d", [](const Tensor& x) { return max_pool2d(image_of(x), {.kernel = 2}); }, 1},
      {"avg_pool2d",
       [](const Tensor& x) { return avg_pool2d(image_of(x), {.kernel = 3, .stride = 1}); }, 1},
      {"adaptive_avg_pool2d",
       [](const Tensor& x) {
         return adaptive_avg_pool2d(image_of(x), {3, 2});
       },
       1},
      {"nearest",
       [](const Tensor& x) {
         return upsample(image_of(x), {5, 5});
       },
       1},
      {"bilinear",
       [](const Tensor& x) {
         return upsample(image_of(x), {5, 5}, {.mode = UpsampleMode::Bilinear});
       },
       1},
      {"bilinear between corners",
       [](const Tensor& x) {
         return upsample(image_of(x), {7, 5},
                         {.mode = UpsampleMode::Bilinear, .align_corners = true});
       },
       1}};
  const Array values = values_of(uniform({4, 6}), 0, DType::Float64);
  for (const Homogeneous& f : operations) {
    const auto run = [&](int k) {
      std::vector<double> scaled = values.values;
      for (double& v : scaled) v = std::ldexp(v, k);
      const Tensor x = tensor(scaled, values.shape);
      x.set_requires_grad();
      const Tensor y = f.run(x);
      y.backward(full(y.shape(), 1, {y.dtype()}) * 0.75);
      return Numbers{to_vector<double>(y), to_vector<double>(x.grad())};
    };
    const Numbers plain = run(0);
    for (const int k : {-980, -700, 700, 1015}) {
      INFO(f.name << " of 2^" << k);
      const Numbers got = run(k);
      for (size_t i = 0; i < plain[0].size(); ++i) {
        const double want = std::ldexp(plain[0][i], k * f.degree);
        CHECK(std::abs(got[0][i] - want) <= 0x1p-48 * std::abs(want));
      }
      for (size_t i = 0; i < plain[1].size(); ++i) {
        const double want = std::ldexp(plain[1][i], k * (f.degree - 1));
        CHECK(std::abs(got[1][i] - want) <=
              0x1p-46 * std::abs(want) + 0x1p-46 * std::ldexp(1, k * (f.degree - 1)));
      }
    }
  }
}

}  // namespace ringgrad::test::dtype_ranges_test
