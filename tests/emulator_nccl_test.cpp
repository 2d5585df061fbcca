// The NCCL process group over emulated devices, a thread for each rank: collectives, no capture, and
// DistributedDataParallel.
#ifdef RINGGRAD_CUDA_EMULATED
#include "cuda_kernels/runtime/event.h"
#include "cuda_kernels/runtime/graph.h"
#include "distributed/init_process_group.h"
#include "tests/catch.h"
#include "tests/nccl_ranks.h"
#include "tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

TEST_CASE("nccl: collectives of every dtype", "[quick][emulated]") {
  const StreamOrderGuard order(GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const DType dtype =
      GENERATE(DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64, DType::UInt8);
  const NcclOptions options{.all_reduce = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring)};
  run_nccl(3, options, [&](ProcessGroup& group) {
    const double r = group.rank();
    const Tensor x = on(group, {r, 10, 3 * r}, dtype);
    group.all_reduce(x, ReduceOp::Sum, {.async = true}).wait();
    must_be(x, {3, 30, 9}, "all_reduce");
    group.all_reduce(x, ReduceOp::Average);
    must_be(x, {3, 30, 9}, "the average");
    const Tensor largest = on(group, {r, 2 - r}, dtype), smallest = on(group, {r + 1}, dtype);
    group.all_reduce(largest, ReduceOp::Max);
    group.all_reduce(smallest, ReduceOp::Min);
    must_be(largest, {2, 2}, "the maximum");
    must_be(smallest, {1}, "the minimum");
    const Tensor from_one = on(group, {r, r + 5}, dtype);
    group.broadcast(from_one, 1);
    must_be(from_one, {1, 6}, "broadcast");
    const Tensor to_two = on(group, {r + 1}, dtype);
    group.reduce(to_two, 2);
    must_be(to_two, {r == 2 ? 6 : r + 1}, "reduce");
    const Tensor all = on(group, std::vector<double>(6), dtype), own = on(group, {r, 7}, dtype);
    group.all_gather(all, own);
    must_be(all, {0, 7, 1, 7, 2, 7}, "all_gather");
    const Tensor part = on(group, {0}, dtype);
    group.reduce_scatter(part, on(group, {1, 2, 3 + r}, dtype));
    must_be(part, {r == 2 ? 12 : 3 * (r + 1)}, "reduce_scatter");
    const Tensor gathered = on(group, {0, 0, 0}, dtype);
    group.gather(gathered, on(group, {r + 4}, dtype), 1);
    if (r == 1) must_be(gathered, {4, 5, 6}, "gather");
    group.scatter(part, on(group, {8, 9, 10}, dtype), 0);
    must_be(part, {8 + r}, "scatter");
    if (r == 0) group.send(on(group, {42}, dtype), 2);
    if (r == 2) {
      group.recv(part, 0);
      must_be(part, {42}, "recv");
    }
    group.barrier();
    const auto pair = group.split(group.rank() == 1 ? -1 : 0);
    must((pair == nullptr) == (group.rank() == 1), "split");
    if (!pair) return;
    const Tensor two = on(group, {r}, dtype);
    pair->all_reduce(two);
    must_be(two, {2}, "all_reduce of two");
  });
}

TEST_CASE("nccl: a collective is not captured, and the group goes on", "[quick][emulated]") {
  const NcclOptions options{.all_reduce = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring)};
  run_nccl(2, options, [](ProcessGroup& group) {
    const Tensor x = on(group, {group.rank() + 1.0}, DType::Float32);
    std::string error;
    try {
      cuda::capture(device_of(group), [&] { group.all_reduce(x); });
    } catch (const Error& e) {
      error = e.what();
    }
    must(error.starts_with("all_reduce of 1 float32: cannot be captured"), error);
    group.all_reduce(x);
    must_be(x, {3}, "all_reduce");
  });
}

TEST_CASE("nccl: memory of a collective that nobody waits for is used again only after it", "[quick][emulated]") {
  const StreamOrderGuard order(GENERATE(StreamOrder::Lazy, StreamOrder::Random));
  run_nccl(2, {}, [](ProcessGroup& group) {
    group.all_reduce(on(group, {1, 2}, DType::Float32), ReduceOp::Sum, {.async = true});
    const Tensor next = full({2}, 7, {.device = device_of(group)}), other = on(group, {1}, DType::Float32);
    group.all_reduce(other);
    must_be(next, {7, 7}, "the memory's next use");
  });
}

TEST_CASE("nccl: a barrier waits for what the devices have been given", "[quick][emulated]") {
  const StreamOrderGuard order(StreamOrder::Lazy);
  run_nccl(2, {}, [](ProcessGroup& group) {
    const Tensor x = ones({2}, {.device = device_of(group)});
    cuda::Event filled(device_of(group));
    filled.record(current_stream(device_of(group)));
    group.barrier();
    must(filled.done(), "the device is not done after the barrier");
  });
}

TEST_CASE("nccl: init_process_group makes the group of this rank's device", "[quick][emulated]") {
  const std::string backend = GENERATE("nccl", "nccl-ring");
  Rendezvous alone;
  alone.local_rank = 5;  // of four devices
  const Device wanted = GENERATE(Device("cuda:1"), Device("cuda:2"));
  InitOptions options;
  options.backend = backend;
  if (wanted.index == 2) options.device = wanted;
  init_process_group(alone, options);
  ProcessGroup& group = process_group();
  CHECK(group.device() == wanted);
  CHECK(group.reaches(wanted));
  CHECK(group.reaches(Device()));
  CHECK(!group.reaches(Device("cuda:0")));
  CHECK(group.backend() == backend + ", and ring");
  for (const Device device : {wanted, Device()}) {
    const Tensor x = full({3}, 2, {.device = device});
    group.all_reduce(x, ReduceOp::Average);
    CHECK(to_vector<double>(x) == std::vector<double>{2, 2, 2});
  }
  destroy_process_group();
  options.device = Device("cuda:9");
  CHECK_THROWS_AS(init_process_group(alone, options), DeviceError);
  CHECK(!is_process_group_initialized());
}

TEST_CASE("nccl: tensors elsewhere are refused", "[quick][emulated]") {
  const auto errors = errors_of_nccl(1, {}, [](ProcessGroup& group) {
    group.all_reduce(ones({2}));  // on the CPU: by the host's group
    group.all_reduce(ones({2}, {.device = Device("cuda:3")}));
  });
  REQUIRE(errors[0] == "all_reduce: a tensor lies on cuda:3, expected cuda:0, the rank's device, or the CPU");
}

namespace {

struct NetWithStatistics : nn::Module {
  nn::Conv2d conv{1, 4, 3, {.padding = 1}};
  nn::BatchNorm2d bn{4};
  nn::Linear fc{4 * 4 * 4, 3};
  NetWithStatistics() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return fc(flatten(max_pool2d(relu(bn(conv(x))), {.kernel = 2}), 1)); }
};

// 6 steps of two ranks, on the CPU or on a device each.
std::vector<double> train_two_ranks(bool on_devices, const NcclOptions& options = {}) {
  std::vector<double> result;
  const auto body = [&](ProcessGroup& group) {
    const Device device = on_devices ? device_of(group) : Device();
    const auto net = make_net<NetWithStatistics>(3 + group.rank(), DType::Float32);
    net->to(device);
    DistributedDataParallel ddp(*net, group, {.caps = {300, 300}});
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int64_t step = 0, begin = 0; step < 6; ++step) {
      const int64_t end = begin + (step == 4 ? 7 : 8);
      const auto [x, target] = samples({1, 8, 8}, 3, DType::Float32, begin, end, group.rank(), group.size());
      optimizer.zero_grad();
      cross_entropy(ddp(to(x, device)), to(target, device)).backward();
      optimizer.step();
      begin = end;
    }
    ddp.check_identical();
    if (group.is_main_process()) result = flat_values(ddp);
  };
  if (on_devices)
    run_nccl(2, options, body);
  else
    run_ddp_ranks(2, body);
  return result;
}

}  // namespace

TEST_CASE("nccl: DistributedDataParallel on devices computes what it does on the CPU", "[quick][emulated]") {
  const auto cpu = train_two_ranks(false);
  const StreamOrderGuard order(GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  CHECK(relative_difference(train_two_ranks(true, {.all_reduce = how, .segment_bytes = 100}), cpu) < 1e-5);
}
#endif
