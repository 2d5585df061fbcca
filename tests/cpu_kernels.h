// What the tests of kernels share: reproducible tensors, their values in double, and the promise that results do not
// depend on the number of threads.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "ringgrad/core/cpu/thread_pool.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test {

inline const std::vector<DType> kFloating{DType::Float32, DType::Float64, DType::BFloat16, DType::Float16};

// Half the distance between 1 and the next number.
inline double epsilon(DType dtype) { return machine_epsilon(dtype) / 2; }
// For a sum of n terms of size 1: one rounding to dtype, and a random walk of roundings in the type it is summed in.
inline double sum_tolerance(DType dtype, int64_t n) {
  return 2 * epsilon(dtype) + 8 * std::sqrt(n + 1.0) * (dtype == DType::Float64 ? 0x1p-53 : 0x1p-24);
}

// Values in [low, high), the same for the same seed.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed, double low = -1, double high = 1) {
  std::vector<double> values(shape.numel());
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = low + (high - low) * (seed >> 8) * 0x1p-24;
  }
  const Tensor x = empty(shape, {.dtype = dtype});
  kernels::copy(x, tensor(values, shape));
  return x;
}

// The elements in row-major order of the logical shape, of a tensor on any device.
inline std::vector<double> values(const Tensor& x) { return to_vector<double>(x); }

// |actual - expected| <= tolerance · (1 + |expected|) everywhere; a NaN fails unless it is expected.
inline void require_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> found = values(actual);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const bool close = std::abs(found[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]));
    if (close || found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))) continue;
    INFO("element " << i << " is " << found[i] << ", expected " << expected[i] << ", tolerance " << tolerance);
    REQUIRE(close);
  }
}

// The bytes of the tensors that run() returns are the same for one, two and three threads.
template <class Run>
void require_same_on_any_threads(Run&& run) {
  const auto bytes_on = [&](int threads) {
    ThreadPool pool(threads);
    StreamGuard guard(Stream{Device(), &pool});
    std::vector<char> bytes;
    for (const Tensor& x : run()) {
      REQUIRE(x.flat_numel() == x.numel());
      const char* data = static_cast<const char*>(x.raw_data());
      bytes.insert(bytes.end(), data, data + x.numel() * itemsize(x.dtype()));
    }
    return bytes;
  };
  const std::vector<char> one = bytes_on(1);
  REQUIRE(bytes_on(2) == one);
  REQUIRE(bytes_on(3) == one);
}

}  // namespace ringgrad::test
