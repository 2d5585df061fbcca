// A training step in its steady state asks the system for nothing: the caching allocator has every
// block it wants.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::steady_state_test {

namespace {

void check_steady(const std::string& name, const models::ModelOptions& sizes, DType dtype) {
  INFO(name << ", " << dtype);
  const auto model = models::make_model(name, sizes);
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  const Tensor images = empty({6, sizes.in_channels, sizes.image_size, sizes.image_size});
  normal_(images, 0, 1);
  const Tensor labels = tensor<int64_t>({0, 1, 2, 3, 4, 5});
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(model->forward(to(images, dtype)), labels).backward();
    optimizer.step();
    return memory_stats({});
  };
  step();
  const MemoryStats first = step();
  const MemoryStats second = step();
  const MemoryStats third = step();
  CHECK(third.cache_misses == first.cache_misses);
  CHECK(third.reserved_bytes == first.reserved_bytes);
  CHECK(third.live_bytes == first.live_bytes);
  CHECK(third.allocations - second.allocations == second.allocations - first.allocations);
}

}  // namespace

TEST_CASE("training steps reuse their memory", "[quick][threads][memory]") {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    check_steady("cnn", {.in_channels = 1, .image_size = 28}, dtype);
    check_steady("resnet20", {.in_channels = 3, .image_size = 16}, dtype);
    check_steady("resnet20b", {.in_channels = 3, .image_size = 16}, dtype);
  }
}

}  // namespace ringgrad::test::steady_state_test
