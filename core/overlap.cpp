#include "ringgrad/core/overlap.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ringgrad {
namespace {

// Calls place(p) with the offset of each element until place returns false.
template <class Place>
bool for_each_place(const Tensor& x, const Place& place) {
  if (x.is_channel_blocked()) {
    for (int64_t p = 0; p < x.flat_numel(); ++p)
      if (!place(p)) return false;
    return true;
  }
  std::vector<int64_t> at(static_cast<size_t>(x.dim()));
  int64_t p = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (!place(p)) return false;
    for (int d = x.dim() - 1; d >= 0; --d) {
      p += x.stride(d);
      if (++at[d] < x.size(d)) break;
      p -= x.size(d) * x.stride(d);
      at[d] = 0;
    }
  }
  return true;
}

// Returns true if each dimension's stride exceeds everything that the dimensions inside it reach.
bool is_nested(const Tensor& x) {
  const DimOrder order = memory_order(x.shape(), x.strides());
  int64_t reached = 0;
  for (int i = order.count - 1; i >= 0; --i) {
    const int d = order.dim[i];
    if (x.size(d) == 1) continue;
    if (x.stride(d) <= reached) return false;
    reached += (x.size(d) - 1) * x.stride(d);
  }
  return true;
}

}  // namespace

Extent extent(const Tensor& x) {
  if (x.is_channel_blocked()) return {0, x.flat_numel() - 1};
  double first = 0;
  double last = 0;
  for (int d = 0; d < x.dim(); ++d) {
    const double way = (x.size(d) - 1.0) * x.stride(d);
    (way < 0 ? first : last) += way;
  }
  const auto place = [](double p) { return static_cast<int64_t>(std::clamp(p, -0x1p62, 0x1p62)); };
  return {place(first), place(last)};
}

bool has_internal_overlap(const Tensor& x) {
  if (x.numel() <= 1 || x.is_contiguous() || x.is_channel_blocked()) return false;
  if (is_nested(x)) return false;
  const auto [first, last] = extent(x);
  if (x.numel() > last - first + 1) return true;
  std::vector<bool> taken(static_cast<size_t>(last - first + 1));
  const bool apart = for_each_place(x, [&, first = first](int64_t p) {
    const bool is_free = !taken[p - first];
    taken[p - first] = true;
    return is_free;
  });
  return !apart;
}

bool have_memory_in_common(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0 || a.device() != b.device())
    return false;
  const auto size_a = static_cast<int64_t>(itemsize(a.dtype()));
  const auto size_b = static_cast<int64_t>(itemsize(b.dtype()));
  const auto [first_a, last_a] = extent(a);
  const auto [first_b, last_b] = extent(b);
  const auto at_a = reinterpret_cast<int64_t>(a.raw_data());
  const auto at_b = reinterpret_cast<int64_t>(b.raw_data());
  const int64_t begin_a = at_a + first_a * size_a;
  const int64_t end_a = at_a + (last_a + 1) * size_a;
  const int64_t begin_b = at_b + first_b * size_b;
  const int64_t end_b = at_b + (last_b + 1) * size_b;
  if (begin_a >= end_b || begin_b >= end_a) return false;
  if (a.flat_numel() > 0 && b.flat_numel() > 0) return true;

  // Places are counted from the lower address, in a unit that divides both element sizes and the
  // distance between the tensors.
  const int64_t begin = std::min(begin_a, begin_b);
  const int64_t unit = std::gcd(std::gcd(size_a, size_b), at_a - at_b);
  std::vector<bool> taken(static_cast<size_t>((std::max(end_a, end_b) - begin) / unit));
  for_each_place(a, [&](int64_t p) {
    const int64_t at = (at_a + p * size_a - begin) / unit;
    std::fill_n(taken.begin() + at, size_a / unit, true);
    return true;
  });
  return !for_each_place(b, [&](int64_t p) {
    const auto at = taken.begin() + (at_b + p * size_b - begin) / unit;
    return std::find(at, at + size_b / unit, true) == at + size_b / unit;
  });
}

}  // namespace ringgrad
