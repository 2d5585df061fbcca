#include "distributed/all_finite.h"

#include <algorithm>
#include <type_traits>

#include "core/check.h"

namespace ringgrad {
namespace {

// A float is NaN or infinite when all bits of its exponent are set: when, without the sign, it is at least as large an
// integer as infinity. A maximum of integers has no order, so the compiler can vectorise it.
template <class Bits>
bool finite(const void* data, int64_t n, Bits infinity) {
  const Bits* bits = static_cast<const Bits*>(data);
  constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (sizeof(Bits) * 8 - 1)));
  Bits largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<Bits>(bits[i] & kMagnitude));
  return largest < infinity;
}

}  // namespace

bool all_finite(const Tensor& x) {
  ASSERT(x.is_contiguous() && x.device().is_cpu());
  switch (x.dtype()) {
    case DType::Float64:
      return finite<uint64_t>(x.raw_data(), x.numel(), 0x7ff0000000000000);
    case DType::Float32:
      return finite<uint32_t>(x.raw_data(), x.numel(), 0x7f800000);
    case DType::BFloat16:
      return finite<uint16_t>(x.raw_data(), x.numel(), 0x7f80);
    case DType::Float16:
      return finite<uint16_t>(x.raw_data(), x.numel(), 0x7c00);
    default:
      throw_unsupported_dtype("all_finite", x.dtype(), "a floating dtype");
  }
}

}  // namespace ringgrad
