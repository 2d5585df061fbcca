// Helpers of the tests of kernels: reproducible tensors, their values in double, and the check that
// results do not depend on the number of threads.
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

inline const std::vector<DType> kFloating{DType::Float32, DType::Float64, DType::BFloat16,
                                          DType::Float16};

// Half the distance between 1 and the next number.
inline double epsilon(DType dtype) { return machine_epsilon(dtype) / 2; }

// Note [Sums]
// The error of a sum of n products is bounded, in any order of additions, with fused multiply-adds
// or without:
//     |got - want| <= γ_n · Σ|terms|,     γ_n = n·u / (1 - n·u)      (Higham 2002, §3.1 and §3.5)
// Here u is half the epsilon of the type in which it is added. A result in a 16-bit type has one
// more rounding. The bound is proved, not measured, so no order that follows a machine's caches or
// the width of its vectors can break it.
inline double gamma_of(int64_t n, DType dtype) {
  // 16-bit products are added in float32, on tensor cores with the last digits cut off (Fasi et al.
  // 2021, §4).
  const double u = dtype == DType::Float64 ? 0x1p-53 : dtype == DType::Float32 ? 0x1p-24 : 0x1p-22;
  return static_cast<double>(n) * u / (1 - static_cast<double>(n) * u);
}
// The bounds of sums of n terms; `magnitudes`: what the same sums are of the terms' absolute
// values.
inline std::vector<double> sum_bounds(DType dtype, int64_t n, std::vector<double> magnitudes) {
  const bool narrow = dtype == DType::BFloat16 || dtype == DType::Float16;
  const double relative =
      gamma_of(n, dtype) + (narrow ? epsilon(dtype) * (1 + gamma_of(n, dtype)) : 0);
  for (double& magnitude : magnitudes)
    magnitude = relative * magnitude + (dtype == DType::Float16 ? 0x1p-25 : 0);
  return magnitudes;
}

// Values in [low, high), the same for the same seed.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed, double low = -1,
                            double high = 1) {
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

// |actual - expected| <= tolerance · (1 + |expected|) everywhere; a NaN fails unless it is
// expected.
inline void require_close(const Tensor& actual, const std::vector<double>& expected,
                          double tolerance) {
  const std::vector<double> found = values(actual);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const bool close = std::abs(found[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]));
    if (close || found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
      continue;
    INFO("element " << i << " is " << found[i] << ", expected " << expected[i] << ", tolerance "
                    << tolerance);
    REQUIRE(close);
  }
}

// |actual - expected| <= bound everywhere, of which each element has its own.
inline void require_within(const Tensor& actual, const std::vector<double>& expected,
                           const std::vector<double>& bounds) {
  const std::vector<double> found = values(actual);
  REQUIRE(found.size() == expected.size());
  REQUIRE(found.size() == bounds.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::abs(found[i] - expected[i]) <= bounds[i]) continue;
    FAIL("element " << i << " is " << found[i] << ", expected " << expected[i] << ", bound "
                    << bounds[i]);
  }
}

// |x|, contiguous.
inline Tensor absolute(const Tensor& x) {
  if (!x) return x;
  std::vector<double> elements = values(x);
  for (double& element : elements) element = std::abs(element);
  const Tensor y = empty(x.shape(), {.dtype = x.dtype()});
  kernels::copy(y, tensor(elements, x.shape()));
  return y;
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
      bytes.insert(bytes.end(), data, data + x.nbytes());
    }
    return bytes;
  };
  const std::vector<char> one = bytes_on(1);
  REQUIRE(bytes_on(2) == one);
  REQUIRE(bytes_on(3) == one);
}

}  // namespace ringgrad::test
