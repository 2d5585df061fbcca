// A module's buffers under DistributedDataParallel: running statistics are averaged at the end of
// every step, never in the middle of backward; integers are rank 0's.
#include <cmath>
#include <cstdint>
#include <limits>

#include "ringgrad/distributed/group_values.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::ddp_buffers_test {

TEST_CASE("running statistics are the weighted mean over the ranks after every step",
          "[ddp][quick][threads]") {
  struct Normed : nn::Module {
    nn::BatchNorm2d bn{1};
    Normed() { register_module("bn", bn); }
    Tensor forward(const Tensor& x) override { return bn(x); }
  };
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Normed>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    const int64_t n = group.rank() == 0 ? 3 : 1;
    const Tensor x = full({n, 1, 1, 2}, group.rank() == 0 ? 1 : 5);
    for (int step = 0; step < 2; ++step) mean(ddp(x)).backward();
    // Each step: 0.9 old + 0.1 batch mean, (3 · 1 + 1 · 5) / 4 = 2.
    must(std::abs(net->bn.running_mean.item<float>() - 0.38) < 1e-6, "running mean");
    must(net->bn.num_batches_tracked.item<int64_t>() == 2, "counters stay whole numbers");
    ddp.check_identical();
  });
}

TEST_CASE("buffers that the graph has saved stay as they are until backward is over",
          "[ddp][quick][threads]") {
  struct Frozen : nn::Module {
    nn::Conv2d conv{1, 2, 3};
    nn::BatchNorm2d bn{2};
    Frozen() {
      register_module("conv", conv);
      register_module("bn", bn);
    }
    Tensor forward(const Tensor& x) override { return bn(conv(x)); }
  };
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Frozen>(3, DType::Float64);
    net->bn.eval();
    // The usual number of samples is learned in the first backward.
    DistributedDataParallel ddp(*net, group);
    must(ddp.is_training() && !net->bn.is_training(), "a wrapper leaves its module's modes alone");
    const Tensor x = full({2, 1, 4, 4}, 1 + group.rank(), {.dtype = DType::Float64});
    for (int step = 0; step < 2; ++step) mean(ddp(x)).backward();
    must(net->conv.weight.grad().defined(), "a gradient");
    ddp.check_identical();
  });
}

TEST_CASE("a graph that is kept may have saved buffers that do not change",
          "[ddp][quick][threads]") {
  struct Masked : nn::Module {
    nn::Linear fc{6, 3};
    Tensor scale = tensor<float>({0.1f, 1, 3});
    Tensor mask = tensor<int64_t>({1, 0, 1});
    Masked() {
      register_module("fc", fc);
      register_buffer("scale", scale);
      register_buffer("mask", mask);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor y = fc(x) * scale;
      return where(mask > 0, y, y * 2);
    }
  };
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Masked>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 5);
    const Tensor y = ddp(x);
    const Tensor first = cross_entropy(y, target);
    const Tensor second = sum(square(y));
    first.backward({}, true);
    second.backward();
  });
}

TEST_CASE("a rank without samples leaves no mark in the buffers, whatever its own hold",
          "[ddp][quick][threads]") {
  struct Tracked : nn::Module {
    nn::Linear fc{6, 3};
    Tensor largest = zeros({1});
    Tracked() {
      register_module("fc", fc);
      register_buffer("largest", largest);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Tracked>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    if (group.rank() == 0) {
      fill_(net->largest, 7);
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, 4);
      cross_entropy(ddp(x), target).backward();
    } else {
      fill_(net->largest, -INFINITY);
      must(ddp.shadow_step(), "rank 0 has samples");
    }
    must(net->largest.item<float>() == 7, "rank 0's");
    ddp.check_identical();
  });
}

TEST_CASE("buffers of integers and booleans become rank 0's", "[ddp][quick][threads]") {
  const DType dtype = GENERATE(DType::Int64, DType::Int32, DType::UInt8, DType::Bool);
  struct Counted : nn::Module {
    nn::Linear fc{6, 3};
    Tensor count;
    explicit Counted(DType dtype) : count(zeros({2}, {.dtype = dtype})) {
      register_module("fc", fc);
      register_buffer("count", count);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_net<Counted>(3, DType::Float32, dtype);
    DistributedDataParallel ddp(*net, group);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 12, group.rank(), 3);
    fill_(net->count, group.rank() == 0 ? 1 : 0);
    cross_entropy(ddp(x), target).backward();
    must(to_vector<double>(to(net->count, DType::Float64)) == std::vector<double>{1, 1},
         "rank 0's");
    ddp.check_identical();
  });
}

namespace {

struct Expert : nn::Module {  // a layer of a different width on each rank
  nn::Linear body{6, 8};
  nn::Linear last{8, 3};
  nn::Linear own;
  nn::BatchNorm2d bn{8};
  explicit Expert(int64_t width) : own(8, width) {
    register_module("body", body);
    register_module("own", own);
    register_module("bn", bn);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = bn(reshape(relu(body(x)), {x.size(0), 8, 1, 1}));
    return last(flatten(h, 1)) + mean(own(flatten(h, 1)));
  }
};

}  // namespace

TEST_CASE("buffers and parameters that are each rank's own", "[ddp][quick][threads]") {
  const bool all_buffers = GENERATE(false, true);
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net<Expert>(3 + group.rank(), DType::Float64, 2 + group.rank());
    DistributedDataParallelOptions options{.ignore = {"own.weight", "own.bias"},
                                           .broadcast_buffers = !all_buffers};
    if (!all_buffers) options.ignore.emplace_back("bn.running_mean");
    const auto before = to_vector<double>(net->own.weight);
    fill_(net->bn.running_mean, group.rank());
    DistributedDataParallel ddp(*net, group, options);
    must(to_vector<double>(net->own.weight) == before, "each rank keeps its own");
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    cross_entropy(ddp(x), target).backward();
    must(net->own.weight.grad().defined() &&
             net->own.weight.grad().shape() == net->own.weight.shape(),
         "its gradient");
    const auto same = [&](const Tensor& x) {
      const auto all = all_gather_values(group, to_vector<double>(x));
      return std::equal(all.begin(), all.begin() + static_cast<int64_t>(all.size() / 2),
                        all.begin() + x.numel());
    };
    must(same(net->last.weight.grad()), "common gradients are averaged");
    must(!same(net->bn.running_mean), "an own buffer stays");
    must(same(net->bn.running_var) != all_buffers, "the others are averaged, unless none is");
    ddp.check_identical();
  });
}

TEST_CASE("a name to ignore that the module lacks is refused", "[ddp][quick]") {
  const auto errors = errors_of_ranks(host_groups(1), [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group, {.ignore = {"first.wieght"}});
  });
  require_contains(
      errors[0], "'first.wieght' is to be ignored, but the module has no such parameter or buffer");
}

namespace {

std::vector<unsigned char> bytes_of(const Tensor& tensor) {
  const Tensor x = as_contiguous(tensor);
  const auto* begin = static_cast<const unsigned char*>(x.raw_data());
  return {begin, begin + x.nbytes()};
}

// Returns values at the ends of the dtype's range, and values that a weight would round.
Tensor extremes(DType dtype) {
  switch (dtype) {
    case DType::Int64:
      return tensor<int64_t>({INT64_MAX, INT64_MIN, 9007199254740993, -1, 0, -9007199254740993});
    case DType::Int32: return tensor<int32_t>({INT32_MAX, INT32_MIN, 16777217, -1, 0, 1});
    case DType::UInt8: return tensor<uint8_t>({255, 128, 127, 1, 0, 2});
    case DType::Bool: return to(tensor<int64_t>({1, 0, 1, 1, 0, 0}), DType::Bool);
    default: break;
  }
  const Tensor x = empty({6}, {.dtype = dtype});
  const double largest = dtype == DType::Float64   ? std::numeric_limits<double>::max()
                         : dtype == DType::Float16 ? 65504
                                                   : 3e38;
  copy_(x, tensor<double>(
               {0.1, -0.0, INFINITY, -largest, 1.0 / 3, dtype == DType::Float64 ? 5e-324 : 1e-7}));
  return x;
}

struct Held : nn::Module {  // a buffer that is never written, and a copy that is not contiguous
  nn::Linear fc{6, 3};
  Tensor flat;
  Tensor turned;
  explicit Held(const Tensor& x)
      : flat(x.clone()), turned(transpose(reshape(x.clone(), {2, 3}), 0, 1)) {
    register_module("fc", fc);
    register_buffer("flat", flat);
    register_buffer("turned", turned);
  }
  Tensor forward(const Tensor& x) override { return fc(x); }
};

}  // namespace

TEST_CASE("a buffer that is the same on all ranks keeps every bit", "[ddp][quick][threads]") {
  const DType dtype = GENERATE(DType::Float64, DType::Float32, DType::Float16, DType::BFloat16,
                               DType::Int64, DType::Int32, DType::UInt8, DType::Bool);
  const bool one_without_samples = GENERATE(false, true);
  const Tensor values = extremes(dtype);
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto net = make_seeded<Held>(3, values);
    DistributedDataParallel ddp(*net, group);
    must(bytes_of(net->flat) == bytes_of(values), "after wrapping");
    for (int step = 0; step < 3; ++step) {
      const int64_t count = std::vector<int64_t>{3, 7, 11}[group.rank()];
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, count);
      if (one_without_samples && group.rank() == 0)
        ddp.shadow_step();
      else
        cross_entropy(ddp(x), target).backward();
    }
    must(bytes_of(net->flat) == bytes_of(values), "after three steps");
    must(bytes_of(net->turned) == bytes_of(transpose(reshape(values, {2, 3}), 0, 1)),
         "not contiguous");
    ddp.check_identical();
  });
}

TEST_CASE("large integers become rank 0's, and float64 buffers their mean",
          "[ddp][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_seeded<Held>(3, extremes(DType::Int64));
    const auto means = make_seeded<Held>(3, extremes(DType::Float64));
    DistributedDataParallel ddp(*net, group);
    DistributedDataParallel of_means(*means, group);
    const int64_t rank = group.rank();
    copy_(net->flat, tensor<int64_t>({INT64_MAX - rank, INT64_MIN + rank, rank, -rank, 0,
                                      (int64_t{1} << 60) + rank}));
    copy_(means->flat, tensor<double>({0.1 * static_cast<double>(rank),
                                       1e300 * static_cast<double>(rank), rank == 0 ? -INFINITY : 2,
                                       1 + 1e-15 * static_cast<double>(rank), 5, -0.0}));
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, rank == 1 ? 10 : 30);
    cross_entropy(ddp(x), target).backward();
    must(to_vector<int64_t>(net->flat) ==
             std::vector<int64_t>{INT64_MAX, INT64_MIN, 0, 0, 0, int64_t{1} << 60},
         "rank 0's integers");
    if (rank == 0)
      must(of_means.shadow_step(), "others have samples");  // so its infinity does not count
    else
      cross_entropy(of_means(x), target).backward();
    const auto got = to_vector<double>(means->flat);
    const std::vector<double> expected{
        0.1 * (10 + 60) / 40, 1e300 * (10 + 60) / 40, 2, 1 + 1e-15 * (10 + 60) / 40, 5, -0.0};
    for (size_t i = 0; i < got.size(); ++i)
      must(std::abs(got[i] / (expected[i] == 0 ? 1 : expected[i]) - (expected[i] == 0 ? 0 : 1)) <
               4e-16,
           "the mean");
    of_means.check_identical();
  });
}

}  // namespace ringgrad::test::ddp_buffers_test
