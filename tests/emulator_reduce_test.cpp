// More long rows than blocks: each block reduces one after another, in the same shared memory.
#ifdef RINGGRAD_CUDA_EMULATED
#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

TEST_CASE("cuda: blocks that go over several rows", "[quick][emulated]") {
  const int64_t n = 33 * 3 + 11, c = 1100;
  const Tensor x = random_tensor({n, c}, DType::Float32, 20), y = empty_like(x), device_y = empty_like(to_device(x));
  kernels::softmax(y, x);
  kernels::softmax(device_y, to_device(x));
  require_close(device_y, values(y), sum_tolerance(DType::Float32, c));
  const Tensor rows = x.as_strided({n, c, 1}, {c, 1, 1}, 0), device_rows = to_device(rows);
  const Tensor best = empty({n, 1}), place = empty({n, 1}, {.dtype = DType::Int64});
  const Tensor device_best = to_device(best), device_place = to_device(place);
  kernels::max(best, place, rows);
  kernels::max(device_best, device_place, device_rows);
  require_close(device_best, values(best), 0);
  REQUIRE(values(device_place) == values(place));
}
#endif
