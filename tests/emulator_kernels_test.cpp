// The CUDA side of core/kernels.h is complete; tests/op_test.cpp says the same of the CPU.
#ifdef RINGGRAD_CUDA_EMULATED
#include "core/kernel.h"
#include "tests/catch.h"

using namespace ringgrad;

TEST_CASE("cuda: every kernel of the contract has an implementation", "[quick][emulated]") {
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next()) {
    INFO(kernel->name());
    CHECK(kernel->has(DeviceType::CUDA, Provider::Native));
  }
}
#endif
