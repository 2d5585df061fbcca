// A program of its own, because a context lives as long as its process.
#include <optional>
#include <thread>
#include <utility>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"

namespace ringgrad::test::emulator_context_test {

TEST_CASE("emulator: ranks on devices 1 and 2 make no context on device 0", "[cuda][threads]") {
  REQUIRE(device_count(DeviceType::CUDA) > 2);
  const auto errors = errors_of_ranks(host_groups(2, "shm", {}), [](HostProcessGroup& host) {
    const Device device(DeviceType::CUDA, host.rank() + 1);
    NcclProcessGroup group(std::shared_ptr<ProcessGroup>(&host, [](ProcessGroup*) {}), device,
                           {.all_reduce = NcclAllReduce::Ring});
    nn::Linear model(3, 2);
    model.to(device);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(model.named_parameters(), {.lr = 0.1});
    const Tensor x = to(ones({4, 3}), device);
    const Tensor alone = to(ones({3}), device);
    CapturedStep trained(device, [&] {
      optimizer.zero_grad();
      sum(ddp(x)).backward();
      optimizer.step();
    });
    for (int step = 0; step < 4; ++step) trained();
    CapturedStep captured(device, [&] { fill_(alone, 2); });
    for (int step = 0; step < 4; ++step) captured();
    must(to_vector<float>(alone) == std::vector<float>(3, 2), "the captured step does not run");
    group.barrier();
  });
  for (const std::string& error : errors) REQUIRE(error.empty());
  REQUIRE(emulator::has_context(1));
  REQUIRE(emulator::has_context(2));
  REQUIRE_FALSE(emulator::has_context(0));
}

TEST_CASE("emulator: a thread that asks and destroys another device's event makes no context",
          "[cuda][threads]") {
  const Device device("cuda:1");
  const cuda::OwnedStream stream(device);
  std::optional<cuda::Event> event(std::in_place, device, true);
  event->record(stream.get());
  std::thread([&] {
    event->synchronize();
    (void)event->milliseconds_since(*event);
    event.reset();
  }).join();
  REQUIRE_FALSE(emulator::has_context(0));
}

}  // namespace ringgrad::test::emulator_context_test
