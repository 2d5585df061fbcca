// Finds the first NaN or infinity. Nearly always there is none, and that is determined at the speed
// of reading memory.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// A float is NaN or infinite if all bits of its exponent are set. Without the sign it is then, as
// an integer, at least as large as infinity. A maximum of integers has no order of evaluation, so
// the compiler can vectorise it.
template <class Bits>
void find(int64_t& record, const void* data, int64_t n, int64_t base, Bits infinity) {
  const Bits* bits = static_cast<const Bits*>(data);
  constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (sizeof(Bits) * 8 - 1)));
  Bits largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, static_cast<Bits>(bits[i] & kMagnitude));
  if (largest < infinity) return;
  const Bits* first =
      std::find_if(bits, bits + n, [&](Bits b) { return (b & kMagnitude) >= infinity; });
  record = std::min(record, base + (first - bits));
}

void find_not_finite_cpu(Stream, const Tensor& record, const Tensor& x, int64_t base) {
  ASSERT(x.is_contiguous() && record.numel() == 1);
  auto& first = *record.data<int64_t>();
  switch (x.dtype()) {
    case DType::Float64:
      return find<uint64_t>(first, x.raw_data(), x.numel(), base, 0x7ff0000000000000);
    case DType::Float32: return find<uint32_t>(first, x.raw_data(), x.numel(), base, 0x7f800000);
    case DType::BFloat16: return find<uint16_t>(first, x.raw_data(), x.numel(), base, 0x7f80);
    case DType::Float16: return find<uint16_t>(first, x.raw_data(), x.numel(), base, 0x7c00);
    default: throw_unsupported_dtype("find_not_finite", x.dtype(), "a floating dtype");
  }
}

REGISTER_KERNEL(find_not_finite, CPU, Native, find_not_finite_cpu);

}  // namespace
}  // namespace ringgrad::cpu
