// Measures the peak performance of the instructions in use, in some milliseconds.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/cpu/conv/product.h"
#include "ringgrad/core/cpu/isa.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::cpu {
namespace {

// Returns the least time of many short runs, in seconds. Other work on the machine only ever adds
// time, and does not affect all runs.
template <class Body>
double least_seconds(int runs, Body&& body) {
  double least = INFINITY;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    least = std::min(least, seconds_since(start));
  }
  return least;
}

// Multiplies a tile of a small matrix product. Its numbers are unknown to the compiler, which would
// otherwise multiply only once.
template <class Product>
double multiply_adds(Stream stream) {
  constexpr int64_t kSteps = 1 << 16;
  constexpr int kRows = 6;
  constexpr int kColumns = 2;  // as many sums as hide the latency of one
  const int64_t units = thread_count(stream);
  const Workspace<float> results(stream, units * conv::kLanes);
  const double seconds = least_seconds(100, [&] {
    parallel_for(stream, units, 1, [&](int64_t unit, int64_t) {
      float left[kRows] = {};
      conv::Vector right[kColumns] = {};
      conv::Vector sums[kRows][kColumns] = {};
      asm volatile("" : "+m"(right));
      for (int64_t step = 0; step < kSteps; ++step) {
        asm volatile("" : "+m"(left));
        RINGGRAD_UNROLL
        for (int i = 0; i < kRows; ++i) RINGGRAD_UNROLL
        for (int j = 0; j < kColumns; ++j)
          sums[i][j] = Product::multiply_add(sums[i][j], &left[i], right[j]);
      }
      conv::Vector all{};
      RINGGRAD_UNROLL
      for (int i = 0; i < kRows; ++i) RINGGRAD_UNROLL
      for (int j = 0; j < kColumns; ++j) all += sums[i][j];
      conv::store(results.data() + unit * conv::kLanes, all);
    });
  });
  return 2.0 * Product::kTerms * conv::kLanes * kRows * kColumns * kSteps *
         static_cast<double>(units) / seconds;
}

double peak_operations(Stream stream, DType dtype) {
  if (dtype == DType::BFloat16) return multiply_adds<conv::ProductOf<bfloat16>>(stream);
  return multiply_adds<conv::Float32Product>(stream) / (dtype == DType::Float64 ? 2 : 1);
}

double peak_bandwidth(Stream stream) {
  constexpr int64_t kUnit = 1 << 17;
  constexpr int64_t kUnits = 256;  // floats; 128 MiB in all
  const Workspace<float> data(stream, kUnits * kUnit);
  const Workspace<float> sums(stream, kUnits * conv::kLanes);
  parallel_for(stream, kUnits, 1,
               [&](int64_t unit, int64_t) { std::fill_n(&data[unit * kUnit], kUnit, 1.0f); });
  const double read = least_seconds(15, [&] {
    parallel_for(stream, kUnits, 1, [&](int64_t unit, int64_t) {
      conv::Vector sum[8] = {};
      for (int64_t i = 0; i < kUnit; i += 8 * conv::kLanes)
        for (int64_t j = 0; j < 8; ++j)
          sum[j] += conv::load(&data[unit * kUnit + i + j * conv::kLanes]);
      for (int j = 1; j < 8; ++j) sum[0] += sum[j];
      conv::store(&sums[unit * conv::kLanes], sum[0]);
    });
  });
  const double copy = least_seconds(15, [&] {
    parallel_for(stream, kUnits / 2, 1, [&](int64_t unit, int64_t) {
      std::memcpy(&data[(kUnits / 2 + unit) * kUnit], &data[unit * kUnit], kUnit * sizeof(float));
    });
  });
  return static_cast<double>(kUnits * kUnit * sizeof(float)) / std::min(read, copy);
}

BEFORE_MAIN(isa,
            register_isa({conv::kIsa, conv::kMultipliesPairs, peak_operations, peak_bandwidth}));

}  // namespace
}  // namespace ringgrad::cpu
