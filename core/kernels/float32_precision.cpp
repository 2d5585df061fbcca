#include "ringgrad/core/kernels/float32_precision.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

static constexpr std::array<std::string_view, 3> kPrecisions = {"highest", "high", "medium"};
static std::atomic<size_t> precision_of_process{0};

void set_float32_matmul_precision(std::string_view precision) {
  const auto found = std::find(kPrecisions.begin(), kPrecisions.end(), precision);
  CHECK(found != kPrecisions.end(), "set_float32_matmul_precision: precision '", precision,
        "', expected highest, high or medium");
  precision_of_process = static_cast<size_t>(found - kPrecisions.begin());
}
std::string_view get_float32_matmul_precision() { return kPrecisions[precision_of_process]; }
bool allows_tf32() { return precision_of_process != 0; }

}  // namespace ringgrad
