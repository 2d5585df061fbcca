// Tests the range of gradients while they travel between ranks: weights must not turn finite
// gradients into infinite ones, nor tiny ones into zeros.
#include <limits>

#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_scale_test {

namespace {

// The gradient of its parameter is the only row of x.
struct Scaled : nn::Module {
  nn::Parameter w;
  explicit Scaled(DType dtype) : w(register_parameter("w", ones({3}, {.dtype = dtype}))) {}
  Tensor forward(const Tensor& x) override { return x * w; }
};

struct Way {  // the way of gradients between ranks
  DType dtype;
  CommHook hook;
  DType travels;
};
Way ways(int number) {
  switch (number) {
    case 0: return {DType::Float16, {}, DType::Float16};
    case 1: return {DType::BFloat16, {}, DType::BFloat16};
    case 2: return {DType::Float32, fp16_compress_hook(), DType::Float16};
    case 3: return {DType::Float32, bf16_compress_hook(), DType::BFloat16};
    case 4: return {DType::Float32, {}, DType::Float32};
    default: return {DType::Float64, {}, DType::Float64};
  }
}

void backward(DistributedDataParallel& ddp, const std::vector<double>& gradient, DType dtype) {
  const Tensor x = empty({1, 3}, {.dtype = dtype});
  copy_(x, tensor(gradient, {1, 3}));
  sum(ddp(x)).backward();
}

}  // namespace

// The reference is the mean in double precision. The bound allows three roundings in the type in
// which gradients travel, and one in their own type.
TEST_CASE("the weighted mean of gradients near the ends of their type", "[ddp][quick][threads]") {
  const Way way = ways(GENERATE(range(0, 6)));
  const bool first_is_skipped = GENERATE(false, true);
  const char* const channel = GENERATE(from_range(channel_names()));
  using Weights = std::vector<double>;
  const std::vector<Weights> steps{{1, 1, 1},    {64, 64, 64},       {4096, 1, 7}, {1, 4096, 4096},
                                   {0, 4096, 0}, {1e-3, 1e-3, 2e-3}, {3, 5, 8},    {1e6, 1e6, 1e6}};
  const std::vector<Weights> of_ranks{
      {30000, 1e-3, -60000}, {2000, 2e-3, -50000}, {60000, 1.5e-3, -65504}};
  run_ddp_ranks(
      3,
      [&](ProcessGroup& group) {
        Scaled net(way.dtype);
        DistributedDataParallel ddp(net, group,
                                    {.comm_hook = way.hook, .weighting = Weighting::Given});
        if (first_is_skipped) {
          ddp.set_weight(1);
          ddp.skip_step();
          backward(ddp, of_ranks[0], way.dtype);
        }
        const double u = machine_epsilon(way.travels) / 2;
        for (const Weights& weights : steps) {
          net.zero_grad();
          ddp.set_weight(weights[group.rank()]);
          backward(ddp, of_ranks[group.rank()], way.dtype);
          const auto got = to_vector<double>(net.w.grad());
          for (size_t i = 0; i < 3; ++i) {
            double sum = 0;
            double total = 0;
            double size = 0;
            for (int r = 0; r < 3; ++r) {
              sum += weights[r] * of_ranks[r][i];
              size += weights[r] * std::abs(of_ranks[r][i]);
              total += weights[r];
            }
            must(std::abs(got[i] - sum / total) <= 4 * u * size / total + 1e-7,
                 str("gradient ", i, " is ", got[i], ", expected ", sum / total, " with weights ",
                     weights[0], ", ", weights[1], ", ", weights[2]));
          }
        }
      },
      channel);
}

TEST_CASE("equal weights leave gradients as they are, bit for bit", "[ddp][quick][threads]") {
  const Way way = ways(GENERATE(range(0, 4)));
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    Scaled net(way.dtype);
    DistributedDataParallel ddp(net, group, {.comm_hook = way.hook});
    for (const int64_t count : {64, 48, 1, 100}) {  // the rows' mean is the row
      net.zero_grad();
      const Tensor row = empty({3}, {.dtype = way.travels});
      copy_(row, tensor<double>({0.1, 65504, 6e-8}));
      const Tensor x = zeros({count, 3}, {.dtype = way.dtype});
      copy_(narrow(x, 0, 0, 1), reshape(to(row, way.dtype), {1, 3}));
      sum(ddp(x)).backward();
      must(to_vector<double>(net.w.grad()) == to_vector<double>(row), "the same bits");
    }
  });
}

TEST_CASE("what becomes infinite on its way is found, and named", "[ddp][quick][threads]") {
  const bool by_hook = GENERATE(true, false);
  const auto errors = errors_of_ranks(host_groups(2), [&](ProcessGroup& group) {
    Scaled net(DType::Float32);
    DistributedDataParallelOptions options{.weighting = Weighting::Given, .usual_weight = 1};
    if (by_hook) options.comm_hook = fp16_compress_hook();
    DistributedDataParallel ddp(net, group, options);
    ddp.set_weight(by_hook ? 1 : 1e9);
    backward(ddp, {1, group.rank() == 1 ? (by_hook ? 1e5 : 1e35) : 1, 1}, DType::Float32);
  });
  for (const std::string& error : errors) {
    require_contains(error,
                     "the gradient of w is finite on rank 1 in step 0, but not as it travels");
    require_contains(error, by_hook ? "in float16" : "in float32");
  }
}

}  // namespace ringgrad::test::ddp_scale_test
