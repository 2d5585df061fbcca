// DataParallel on CUDA devices: scatter, replicate, parallel apply, gather and the reduction of
// gradients, under orders of streams that a wait left out would not survive.
#include "ringgrad/distributed/data_parallel.h"

#include "ringgrad/core/kernels/device_copies.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_data_parallel_test {

namespace {

std::vector<Device> cuda_devices(int n) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.emplace_back(DeviceType::CUDA, i);
  return devices;
}

// Takes six steps on batches of 12 and 7. Without devices it trains on the CPU, without a wrapper.
std::vector<double> train_on(const std::vector<Device>& devices) {
  const auto net = make_net<Mlp>(3, DType::Float32);
  std::unique_ptr<DataParallel> wrapper;
  if (!devices.empty()) {
    net->to(devices[0]);
    wrapper = std::make_unique<DataParallel>(
        *net, [] { return std::make_shared<Mlp>(); }, devices);
  }
  nn::Module& model = wrapper ? static_cast<nn::Module&>(*wrapper) : *net;
  const Device home = devices.empty() ? Device() : devices[0];
  optim::SGD optimizer(model.named_parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int64_t step = 0, begin = 0; step < 6; ++step) {
    const int64_t end = begin + (step % 2 == 0 ? 12 : 7);
    const auto [x, target] = samples({6}, 3, DType::Float32, begin, end);
    optimizer.zero_grad();
    cross_entropy(model(x), to(target, home)).backward();  // x is scattered from the host
    optimizer.step();
    begin = end;
  }
  return flat_values(model);
}

}  // namespace

TEST_CASE("DataParallel on CUDA devices trains as the CPU does", "[data_parallel][cuda][threads]") {
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const auto alone = train_on({});
  for (const int n : {1, 2, 3})
    if (enough_devices(n))
      CHECK(relative_difference(train_on(cuda_devices(n)), alone) <
            training_tolerance(DType::Float32));
}

TEST_CASE("DataParallel sends all parameters to a CUDA device in one copy, and gradients back",
          "[data_parallel][cuda][threads]") {
  if (!enough_devices(3)) return;
  NormedCnn net;
  net.to(Device("cuda:0"));
  DataParallel model(
      net, [] { return std::make_shared<NormedCnn>(); }, cuda_devices(3));
  const optim::SGD optimizer(model.named_parameters(), {.lr = 0.05});
  const Tensor x = to(samples({1, 8, 8}, 3, DType::Float32, 0, 12).x, Device("cuda:0"));
  const DeviceCopies copies;
  const Tensor loss = sum(square(model(x)));
  // For each replica but the first: input, parameters, running statistics, their counts, output.
  CHECK(copies.seen.size() == 2 * 5);
  loss.backward();
  CHECK(copies.seen.size() == 2 * 5 + 2 * 2);
}

TEST_CASE("an error in a replica names the CUDA device", "[data_parallel][cuda][threads]") {
  if (!enough_devices(2)) return;
  struct Failing : nn::Module {
    nn::Linear fc{6, 3};
    Failing() { register_module("fc", fc); }
    Tensor forward(const Tensor& x) override {
      if (x.device().index == 1) throw Error("boom");
      return fc(x);
    }
  };
  Failing net;
  net.to(Device("cuda:0"));
  DataParallel model(
      net, [] { return std::make_shared<Failing>(); }, cuda_devices(2));
  require_error<Error>("data_parallel: in replica 1 on cuda:1: boom", [&] {
    model(zeros({4, 6}));
  });
}

}  // namespace ringgrad::test::cuda_data_parallel_test
