// What the rows of tests/op_specs*.cpp do not reach of elementwise operations: addresses that no vector load may use.
#ifdef RINGGRAD_CUDA_EMULATED
#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// The same values from an address that is aligned for one element only.
Tensor unaligned(const Tensor& x) {
  const Tensor longer = empty({x.numel() + 1}, {.dtype = x.dtype()});
  const Tensor view = longer.as_strided(x.shape(), contiguous_strides(x.shape()), 1);
  kernels::copy(view, x);
  return view;
}

}  // namespace

TEST_CASE("cuda: unaligned operands, and in place", "[quick][emulated]") {
  for (DType dtype : kFloating) {
    const double tolerance = 2 * epsilon(dtype);
    const Tensor a = random_tensor({7, 37}, dtype, 1), b = random_tensor({7, 37}, dtype, 2);
    std::vector<double> sum = values(a);
    const std::vector<double> added = values(b);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    for (const bool shift_x : {false, true})
      for (const bool shift_y : {false, true}) {
        INFO(dtype << ", unaligned: " << shift_x << " " << shift_y);
        const Tensor x = to_device(shift_x ? unaligned(a) : a), y = to_device(shift_y ? unaligned(b) : b);
        REQUIRE((reinterpret_cast<uintptr_t>(x.raw_data()) % 16 != 0) == shift_x);
        REQUIRE((reinterpret_cast<uintptr_t>(y.raw_data()) % 16 != 0) == shift_y);
        kernels::add(x, x, y);
        require_close(x, sum, tolerance);
        kernels::fill(x, 0.3);  // which no dtype holds exactly
        require_close(x, std::vector<double>(sum.size(), 0.3), tolerance);
      }
  }
}
#endif
