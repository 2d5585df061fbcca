// Every step of every ladder of the CUDA kernels, as `ringgrad bench kernel` runs it, against the
// CPU in double.
#include <numeric>

#include "ringgrad/core/kernels/ladder.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/cuda/cuda_kernels.h"

namespace ringgrad::test::cuda_ladders_test {

namespace {

struct Expected {
  std::vector<double> values;
  std::vector<double> bounds;
};

Tensor on_host(const Tensor& x) { return tensor(values(x), x.shape()); }

// Computes the expected results of a problem from its inputs alone.
std::vector<Expected> matmul_expected(const LadderProblem& problem, DType dtype,
                                      const std::vector<int64_t>& size) {
  const auto product = [](const Tensor& a, const Tensor& b) {
    const Tensor c = empty({1, a.size(1), b.size(2)}, {.dtype = DType::Float64});
    kernels::matmul(c, a, b, {});
    return values(c);
  };
  const Tensor a = on_host(problem.inputs[0]);
  const Tensor b = on_host(problem.inputs[1]);
  return {{product(a, b), sum_bounds(dtype, size[0], product(absolute(a), absolute(b)))}};
}

std::vector<Expected> conv_expected(const char* kernel, const LadderProblem& problem, DType dtype,
                                    const std::vector<int64_t>& size) {
  const Conv2dOptions options{.stride = size[4], .padding = 1};
  const std::string name = kernel;
  const auto by_cpu = [&](const Tensor& first, const Tensor& second) {
    const Tensor result = empty(problem.results[0].shape(), {.dtype = DType::Float64});
    if (name == "conv2d") kernels::conv2d(result, first, second, {}, options);
    if (name == "conv2d_backward_input")
      kernels::conv2d_backward_input(result, first, second, {}, options);
    if (name == "conv2d_backward_weight")
      kernels::conv2d_backward_weight(result, first, second, options);
    return values(result);
  };
  const Tensor first = on_host(problem.inputs[0]);
  const Tensor second = on_host(problem.inputs[1]);
  const int64_t pixels = size[0] * size[3] * size[3];
  const int64_t terms = std::max({pixels, 9 * size[1], 9 * size[2]});
  return {
      {by_cpu(first, second), sum_bounds(dtype, terms, by_cpu(absolute(first), absolute(second)))}};
}

std::vector<Expected> moments_expected(const LadderProblem& problem) {
  const std::vector<double> x = values(problem.inputs[0]);
  const Shape& shape = problem.inputs[0].shape();
  const auto C = static_cast<size_t>(shape[1]);
  const auto S = static_cast<size_t>(shape[2] * shape[3]);
  const double count = static_cast<double>(x.size() / C);
  Expected mean{std::vector<double>(C), {}};
  Expected var{std::vector<double>(C), {}};
  for (size_t i = 0; i < x.size(); ++i) mean.values[i / S % C] += x[i] / count;
  for (size_t i = 0; i < x.size(); ++i) {
    const double apart = x[i] - mean.values[i / S % C];
    var.values[i / S % C] += apart * apart / count;
  }
  // Welford's sums in float32 (Chan, Golub & LeVeque 1983, table 1); the noise's mean is small
  // against its deviation.
  const double relative = gamma_of(4 * static_cast<int64_t>(count), DType::Float32);
  for (size_t c = 0; c < C; ++c) {
    mean.bounds.push_back(relative * (1 + std::abs(mean.values[c])));
    var.bounds.push_back(relative * (1 + var.values[c]));
  }
  return {mean, var};
}

std::vector<Expected> expected(const Ladder& ladder, const LadderProblem& problem, DType dtype,
                               const std::vector<int64_t>& size) {
  const std::string kernel = ladder.kernel;
  const std::vector<double> x = values(problem.inputs[0]);
  const std::vector<double> exact(x.size(), 0);
  if (kernel == "matmul") return matmul_expected(problem, dtype, size);
  if (kernel.starts_with("conv2d")) return conv_expected(ladder.kernel, problem, dtype, size);
  if (kernel == "batch_norm_stats") return moments_expected(problem);
  if (kernel == "copy") return {{x, exact}};
  if (kernel == "transpose") {
    std::vector<double> y;
    for (int64_t c = 0; c < size[1]; ++c)
      for (int64_t r = 0; r < size[0]; ++r) y.push_back(x[static_cast<size_t>(r * size[1] + c)]);
    return {{y, exact}};
  }
  REQUIRE(kernel == "sum");
  double sum = 0;
  double magnitude = 0;
  for (const double value : x) {
    sum += value;
    magnitude += std::abs(value);
  }
  return {{{sum}, sum_bounds(dtype, size[0], {magnitude})}};
}

// Runs each step that takes such operands, and says how many did.
int climb(const char* kernel, const std::vector<int64_t>& size, DType dtype) {
  const Ladder* ladder = find_ladder(kernel);
  REQUIRE(ladder);
  REQUIRE(size.size() == ladder->sizes.size());
  const LadderProblem problem = ladder->problem(Device(DeviceType::CUDA), dtype, size);
  int climbed = 0;
  for (int step = 0; step < static_cast<int>(ladder->steps.size()); ++step) {
    if (!problem.supports(step)) continue;
    ++climbed;
    INFO(kernel << ", step " << ladder->steps[static_cast<size_t>(step)].name << ", "
                << problem.shapes << ", " << dtype);
    for (const Tensor& result : problem.results)
      copy_(result,
            tensor(std::vector<double>(static_cast<size_t>(result.numel()), NAN), result.shape()));
    problem.run(step, current_stream(Device(DeviceType::CUDA)));
    const std::vector<Expected> want = expected(*ladder, problem, dtype, size);
    REQUIRE(want.size() == problem.results.size());
    for (size_t i = 0; i < want.size(); ++i)
      require_within(problem.results[i], want[i].values, want[i].bounds);
  }
  return climbed;
}

}  // namespace

TEST_CASE("cuda: steps that move memory", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    REQUIRE(climb("copy", {4096}, dtype) == 3);
    REQUIRE(climb("copy", {1033}, dtype) == 2);  // not in vectors
    REQUIRE(climb("transpose", {64, 96}, dtype) == 3);
    REQUIRE(climb("transpose", {33, 70}, dtype) == 3);
  }
}

TEST_CASE("cuda: steps of a sum", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const int64_t n : {1, 255, 256, 257, 70001}) REQUIRE(climb("sum", {n}, DType::Float32) == 5);
}

TEST_CASE("cuda: steps of batch norm's statistics", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  REQUIRE(climb("batch_norm_stats", {3, 64, 9}, DType::BFloat16) == 4);
  REQUIRE(climb("batch_norm_stats", {2, 24, 5}, DType::Float32) == 4);
  REQUIRE(climb("batch_norm_stats", {2, 9, 5}, DType::Float16) == 3);
}

TEST_CASE("cuda: steps of products", "[quick][cuda]") {
  REQUIRE(climb("matmul", {64}, DType::BFloat16) == 10);
  REQUIRE(climb("matmul", {256}, DType::BFloat16) == 14);
  REQUIRE(climb("matmul", {40}, DType::Float16) == 5);
  REQUIRE(climb("matmul", {36}, DType::Float32) == 5);
  for (const char* kernel : {"conv2d", "conv2d_backward_input", "conv2d_backward_weight"}) {
    REQUIRE(climb(kernel, {2, 8, 16, 5, 2}, DType::BFloat16) == 3);
    REQUIRE(climb(kernel, {1, 3, 5, 6, 1}, DType::Float32) == 2);
    const bool hopper = cuda::compute_capability_major(Device(DeviceType::CUDA)) == 9;
    REQUIRE(climb(kernel, {1, 16, 16, 8, 2}, DType::BFloat16) == (hopper ? 5 : 4));
  }
}

TEST_CASE("cuda: every ladder says what its steps are, and has sizes that they take",
          "[quick][cuda]") {
  REQUIRE(ladders().size() == 8);
  for (const Ladder& ladder : ladders()) {
    INFO(ladder.kernel);
    REQUIRE(find_ladder(ladder.kernel) == &ladder);
    REQUIRE(ladder.large.size() == ladder.sizes.size());
    const Device device(DeviceType::CUDA);
    const LadderProblem half = ladder.problem(device, DType::BFloat16, ladder.small);
    const LadderProblem single = ladder.problem(device, DType::Float32, ladder.small);
    for (int step = 0; step < static_cast<int>(ladder.steps.size()); ++step)
      REQUIRE((half.supports(step) || single.supports(step)));
  }
  REQUIRE(find_ladder("matmull") == nullptr);
}

}  // namespace ringgrad::test::cuda_ladders_test
