// Counts what a training step asks of the device, without running it: a recorded step's launches,
// and the bytes of its kernels' arguments. Each launch of a captured step costs a microsecond or
// two, whatever it does.
#include <map>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/core/random.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"

namespace ringgrad::test::cuda_launches_test {

namespace {

struct Counts {
  size_t launches = 0;
  // The bytes that convolutions, batch norm and the optimizer need for their computation.
  double bytes = 0;
  double needed = 0;
  std::map<std::string, int> calls;
};

// A step as `ringgrad bench train` takes it.
Counts counts_of_step(const std::string& name, int64_t batch, DType dtype) {
  const LargeDevices large;
  const Device device(DeviceType::CUDA);
  manual_seed(0);
  const models::ModelOptions sizes = models::usual_images(name);
  const auto model = models::make_model(name, sizes);
  model->to(device);
  const Tensor images =
      zeros({batch, sizes.in_channels, sizes.image_size, sizes.image_size}, {.device = device});
  const Tensor labels = zeros({batch}, {.dtype = DType::Int64, .device = device});
  optim::SGD optimizer(model->named_parameters(),
                       {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
  Counts counts;
  const cuda::Graph graph = cuda::capture(device, [&] {
    const KernelProfile profile;
    optimizer.zero_grad();
    cross_entropy(to((*model)(to(images, dtype)), DType::Float32), labels).backward();
    optimizer.step();
    for (const KernelCall& call : profile.calls()) {
      const std::string kernel = call.kernel;
      ++counts.calls[kernel];
      counts.bytes += call.bytes;
      if (kernel.starts_with("conv2d") || kernel.starts_with("batch_norm") || kernel == "sgd_step")
        counts.needed += call.bytes;
    }
  });
  counts.launches = graph.nodes();
  return counts;
}

}  // namespace

TEST_CASE("cuda: how many launches a training step takes, and how many bytes it moves", "[cuda]") {
  const Counts counts = counts_of_step("resnet18", 64, DType::BFloat16);
  for (const auto& [kernel, calls] : counts.calls) UNSCOPED_INFO(kernel << " " << calls);
  INFO(counts.launches << " launches, " << counts.bytes * 1e-6 << " MB, " << counts.needed * 1e-6
                       << " MB needed");
  CHECK(counts.launches <= 210);
  // The rest is casts, copies and sums of a leaf's gradients.
  CHECK(counts.bytes <= 1.15 * counts.needed);
}

}  // namespace ringgrad::test::cuda_launches_test
