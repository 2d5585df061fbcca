#include "ringgrad/tests/test_util.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test {

// This runs before main, so before the first use: tests also run on emulated devices, if the build
// has the emulator.
[[maybe_unused]] static const bool emulated_devices = setenv("RINGGRAD_CUDA_DEVICES", "4", 0) == 0;

double machine_epsilon(DType dtype) {
  switch (dtype) {
    case DType::Float32: return std::numeric_limits<float>::epsilon();
    case DType::Float64: return std::numeric_limits<double>::epsilon();
    case DType::BFloat16: return 0x1p-7;
    case DType::Float16: return 0x1p-10;
    default: return 0;
  }
}

std::string difference(const std::vector<double>& got, const std::vector<double>& want,
                       Tolerance tolerance) {
  if (got.size() != want.size()) return str(got.size(), " elements, expected ", want.size());
  double largest = 1;
  for (double w : want)
    if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
  const double relative =
      machine_epsilon(tolerance.dtype) * (4 + 2 * std::sqrt(static_cast<double>(tolerance.terms)));
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double scale = tolerance.terms > 1 ? largest : std::max(1.0, std::abs(want[i]));
    const double error = std::abs(got[i] - want[i]);
    const double allowed = relative * scale;
    if (!(error <= allowed) || !std::isfinite(want[i])) {
      std::ostringstream text;
      text.precision(17);
      text << "element " << i << " is " << got[i] << ", expected " << want[i] << ": error " << error
           << ", allowed " << allowed << " (" << tolerance.dtype << ", sums of " << tolerance.terms
           << ")";
      return text.str();
    }
  }
  return {};
}

std::string difference(const Tensor& got, const std::vector<double>& want, Tolerance tolerance) {
  return difference(to_vector<double>(got), want, tolerance);
}

void require_contains(const std::string& text, const std::string& fragment) {
  INFO("got:      " << text << "\n  expected: " << fragment);
  REQUIRE(text.find(fragment) != std::string::npos);
}

}  // namespace ringgrad::test
