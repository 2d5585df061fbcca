// Every step of the CUDA matrix product's ladder, against the CPU's in double.
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/cuda/cuda_kernels.h"

namespace ringgrad::test::cuda_matmul_test {
using cuda::MatmulStep;

namespace {

// A matrix [B, R, C] stored row by row or column by column.
Tensor matrix(int64_t batches, int64_t rows, int64_t cols, DType dtype, uint32_t seed,
              bool transpose) {
  if (!transpose) return random_tensor({batches, rows, cols}, dtype, seed);
  const Tensor stored = random_tensor({batches, cols, rows}, dtype, seed);
  return stored.as_strided({batches, rows, cols}, {rows * cols, 1, rows}, 0);
}

// Computes the product on the CPU in double, which tests/kernels/cpu_kernels_test.cpp and
// op_specs_matmul.cpp check.
std::vector<double> product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const Tensor c = empty({a.size(0), a.size(1), b.size(2)}, {.dtype = DType::Float64});
  kernels::matmul(c, in_double(a), in_double(b), in_double(bias));
  return values(c);
}

void require_products(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const std::vector<double> magnitudes = product(absolute(a), absolute(b), absolute(bias));
  require_within(c, product(a, b, bias), sum_bounds(a.dtype(), a.size(2) + 1, magnitudes));
}

void check(MatmulStep step, const Tensor& a, const Tensor& b, const Tensor& bias) {
  INFO(cuda::name(step) << ": " << a.shape() << " · " << b.shape() << " with strides "
                        << a.strides() << ", " << b.strides() << ", " << a.dtype());
  const Tensor da = to_device(a);
  const Tensor db = to_device(b);
  const Tensor dbias = to_device(bias);
  const Tensor c = empty_on_device({a.shape()[0], a.shape()[1], b.shape()[2]}, a.dtype());
  REQUIRE(cuda::supports(step, c, da, db));
  cuda::matmul(step, current_stream(c.device()), c, da, db, dbias);
  require_products(c, a, b, bias);
}

void check_all_layouts(MatmulStep step, int64_t batches, int64_t M, int64_t N, int64_t K,
                       DType dtype) {
  for (int layout = 0; layout < 4; ++layout)
    check(step, matrix(batches, M, K, dtype, 1, layout & 1),
          matrix(batches, K, N, dtype, 2, layout & 2),
          layout % 3 == 0 ? random_tensor({N}, dtype, 3) : Tensor());
}

}  // namespace

TEST_CASE("cuda: each step of the matrix product, in float32", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const auto step : {MatmulStep::Naive, MatmulStep::Coalesced, MatmulStep::SharedTile,
                          MatmulStep::RegisterTile}) {
    check_all_layouts(step, 1, 33, 65, 40, DType::Float32);
    check_all_layouts(step, 3, 5, 7, 9, DType::Float32);
  }
  check_all_layouts(MatmulStep::RegisterTile, 1, 130, 140, 17, DType::Float32);
  // Whole tiles, and remainders.
  check_all_layouts(MatmulStep::Vectorised, 1, 132, 136, 20, DType::Float32);
  check_all_layouts(MatmulStep::Vectorised, 2, 128, 128, 16, DType::Float32);
}

TEST_CASE("cuda: the matrix product in float64", "[quick][cuda]") {
  for (const auto step : {MatmulStep::SharedTile, MatmulStep::RegisterTile})
    check_all_layouts(step, 2, 20, 30, 11, DType::Float64);
}

TEST_CASE("cuda: the matrix product on tensor cores", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    // Whole tiles, copied 16 bytes at a time.
    check_all_layouts(MatmulStep::TensorCores, 1, 64, 64, 96, dtype);
    // Copied 16 bytes at a time, with remainders.
    check_all_layouts(MatmulStep::TensorCores, 2, 72, 40, 104, dtype);
    check_all_layouts(MatmulStep::TensorCores, 1, 37, 19, 53, dtype);  // element by element
  }
}

TEST_CASE("cuda: the steps to tensor cores, whole tiles row by row", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const auto step :
       {MatmulStep::Fragments, MatmulStep::Ldmatrix, MatmulStep::PaddedRows, MatmulStep::Stages}) {
    for (const int64_t K : {32, 64, 160})  // fewer slices than stages, and more
      check(step, random_tensor({2, 64, K}, DType::BFloat16, 1),
            random_tensor({2, K, 128}, DType::BFloat16, 2),
            random_tensor({128}, DType::BFloat16, 3));
    check(step, random_tensor({1, 128, 96}, DType::Float16, 4),
          random_tensor({1, 96, 64}, DType::Float16, 5), {});
    const Tensor c = empty_on_device({1, 64, 64}, DType::BFloat16);
    const Tensor a = empty_on_device({1, 64, 48}, DType::BFloat16);
    REQUIRE(!cuda::supports(step, c, a, empty_on_device({1, 48, 64}, DType::BFloat16)));
  }
}

TEST_CASE("cuda: large tiles on tensor cores", "[cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  // More than a small tile each way, and a large one for each multiprocessor; one that is full, and
  // rests.
  const int64_t enough = cuda::multiprocessors(Device(DeviceType::CUDA));
  check_all_layouts(MatmulStep::TensorCores, enough, 72, 72, 104, DType::BFloat16);
  check_all_layouts(MatmulStep::TensorCores, enough / 4 + 1, 136, 200, 40, DType::Float16);
}

TEST_CASE("cuda: the steps to Hopper's product, whole tiles row by row", "[cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  const auto check_whole = [](MatmulStep step, int64_t batches, int64_t M, int64_t N, int64_t K,
                              DType dtype) {
    check(step, random_tensor({batches, M, K}, dtype, 1), random_tensor({batches, K, N}, dtype, 2),
          random_tensor({N}, dtype, 3));
  };
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    // Fewer slices than stages, and more.
    check_whole(MatmulStep::WarpTiles, 2, 128, 128, 64, dtype);
    check_whole(MatmulStep::WarpTiles, 1, 128, 256, 320, dtype);
    check_whole(MatmulStep::Warpgroup, 2, 128, 128, 64, dtype);
    check_whole(MatmulStep::Warpgroup, 1, 128, 256, 192, dtype);
    check_whole(MatmulStep::Producer, 2, 128, 256, 64, dtype);
    check_whole(MatmulStep::Producer, 1, 128, 256, 576, dtype);
    check_whole(MatmulStep::Clusters, 2, 256, 256, 64, dtype);
    check_whole(MatmulStep::Clusters, 1, 256, 256, 576, dtype);
  }
}

TEST_CASE("cuda: Hopper's product of any layout, with remainders, in batches", "[cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed));
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    check_all_layouts(MatmulStep::Hopper, 1, 64, 64, 64, dtype);
    check_all_layouts(MatmulStep::Hopper, 3, 72, 200, 136, dtype);
    check_all_layouts(MatmulStep::Hopper, 1, 152, 64, 8, dtype);
  }
  // The wide tiles of a large result, and the splits of a small one's long sums.
  check_all_layouts(MatmulStep::Hopper, 1, 1032, 1048, 72, DType::BFloat16);
  check_all_layouts(MatmulStep::Hopper, 2, 64, 72, 2056, DType::BFloat16);
}

TEST_CASE("cuda: Hopper's product reads what TMA can read", "[quick][cuda]") {
  const DType dtype = DType::BFloat16;
  const Tensor c = empty_on_device({2, 64, 64}, dtype);
  const auto supports = [&](const Tensor& a, const Tensor& b) {
    return cuda::supports(MatmulStep::Hopper, c, a, b);
  };
  const Tensor memory = empty_on_device({20000}, dtype);
  const auto view = [&](const Strides& strides, int64_t offset = 0) {
    return memory.as_strided({2, 64, 64}, strides, offset);
  };
  const Tensor plain = view({4096, 64, 1});
  REQUIRE(supports(plain, view({4096, 1, 64})));
  REQUIRE(supports(plain, view({0, 64, 1})));         // both batches share it
  REQUIRE(supports(plain, view({4096, 72, 1})));      // rows apart
  REQUIRE(!supports(plain, view({4096, 68, 1})));     // rows at multiples of 8 bytes
  REQUIRE(!supports(view({4100, 64, 1}), plain));     // batches likewise
  REQUIRE(!supports(view({4096, 64, 1}, 4), plain));  // the beginning likewise
  REQUIRE(!supports(view({8192, 128, 2}), plain));
  REQUIRE(!supports(view({4096, 8, 1}), plain));  // rows overlap
  // In batches of one, the batches' stride does not matter.
  const Tensor one = memory.as_strided({1, 64, 64}, {3, 64, 1}, 0);
  REQUIRE(cuda::supports(MatmulStep::Hopper, empty_on_device({1, 64, 64}, dtype), one, one));
  REQUIRE(!cuda::supports(MatmulStep::Hopper, empty_on_device({1, 64, 68}, dtype), one,
                          memory.as_strided({1, 64, 68}, {0, 72, 1}, 0)));
  REQUIRE(!cuda::supports(MatmulStep::Hopper, empty_on_device({1, 64, 64}, DType::Float32),
                          empty_on_device({1, 64, 64}, DType::Float32),
                          empty_on_device({1, 64, 64}, DType::Float32)));
  // Both batches share b.
  const Tensor a = random_tensor({2, 64, 80}, dtype, 1);
  const Tensor b = random_tensor({1, 80, 64}, dtype, 2).as_strided({2, 80, 64}, {0, 64, 1}, 0);
  check(MatmulStep::Hopper, a, b, {});
}

TEST_CASE("cuda: kernels::matmul takes any strides, and K = 0", "[quick][cuda]") {
  for (const DType dtype : kFloating) {
    const Tensor wide = random_tensor({2, 12, 30}, dtype, 4);
    const Tensor every_third = wide.as_strided({2, 12, 10}, {360, 30, 3}, 1);
    const Tensor b = random_tensor({10, 6}, dtype, 5);
    const Tensor expanded = b.as_strided({2, 10, 6}, {0, 6, 1}, 0);
    const Tensor bias = random_tensor({6}, dtype, 6);
    const Tensor c = empty_on_device({2, 12, 6}, dtype);
    kernels::matmul(c, to_device(every_third), to_device(expanded), to_device(bias));
    require_products(c, every_third, expanded, bias);
    kernels::matmul(c, empty_on_device({2, 12, 0}, dtype), empty_on_device({2, 0, 6}, dtype),
                    to_device(bias));
    std::vector<double> rows(144);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = values(bias)[i % 6];
    require_close(c, rows, 0);
  }
}

}  // namespace ringgrad::test::cuda_matmul_test
