// Errors of CUDA devices before a kernel runs: too little memory, missing devices, tensors on
// different devices.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_errors_test {

namespace {

const Device kGpu("cuda:0");

}  // namespace

TEST_CASE("cuda: too large a tensor is an error that names the device, and others fit afterwards",
          "[quick][cuda]") {
  const int64_t before = memory_stats(kGpu).live_bytes;
  constexpr int64_t kMoreThanAny = int64_t{1} << 50;
  require_error<OutOfMemoryError>("out of memory on cuda:0: asked for",
                                  [&] { empty({kMoreThanAny}, {.device = kGpu}); });
  CHECK(memory_stats(kGpu).live_bytes == before);
  CHECK(to_vector<float>(add(ones({3}, {.device = kGpu}), 1.0)) == std::vector<float>(3, 2));
}

TEST_CASE("cuda: a device that does not exist", "[quick][cuda]") {
  require_error<DeviceError>("device cuda:63 does not exist",
                             [] { ones({2}, {.device = Device("cuda:63")}); });
  require_error<DeviceError>("device cuda:63 does not exist",
                             [] { to(ones({2}), Device("cuda:63")); });
}

TEST_CASE("cuda: operands in different places are refused", "[quick][cuda]") {
  const Tensor here = ones({2}, {.device = kGpu});
  require_error<DeviceError>("add: tensors on cuda:0 and cpu:0, expected one device",
                             [&] { add(here, ones({2})); });
  if (!enough_devices(2)) return;
  const Tensor there = ones({2}, {.device = Device("cuda:1")});
  require_error<DeviceError>("add: tensors on cuda:0 and cuda:1, expected one device",
                             [&] { add(here, there); });
  require_error<DeviceError>("set_grad: the gradient is on cuda:1", [&] { here.set_grad(there); });
}

}  // namespace ringgrad::test::cuda_errors_test
