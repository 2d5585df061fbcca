// Running sums and sorted order along the middle dimension of x [O, N, I], on the CPU.
#include <algorithm>
#include <bit>
#include <limits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/numbers.h"

namespace ringgrad::cpu {
namespace {

// y = the running sums of x [n, inner], for `columns` columns side by side: one, or at most
// kColumns.
constexpr int64_t kColumns = 128;

template <class T, class Columns>
void running_sums(T* y, const T* x, int64_t n, int64_t inner, Columns columns, bool reverse) {
  using A = Accumulator<T>;
  // This is wide enough that no sum loses digits.
  using Sum = std::conditional_t<std::is_integral_v<A>, Wrapping<A>, double>;
  Sum sum[kColumns] = {};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = (reverse ? n - 1 - i : i) * inner;
    for (int64_t j = 0; j < columns; ++j) sum[j] += static_cast<Sum>(static_cast<A>(x[at + j]));
    for (int64_t j = 0; j < columns; ++j) y[at + j] = static_cast<T>(static_cast<A>(sum[j]));
  }
}

void cumsum_cpu(Stream stream, const Tensor& y, const Tensor& x, bool reverse) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && y.is_contiguous());
  const int64_t n = x.shape()[1];
  const int64_t inner = x.shape()[2];
  const int64_t width = std::min(inner, kColumns);
  const int64_t tiles = ceil_div(inner, kColumns);
  visit_number("cumsum", x.dtype(), [&]<class T>() {
    parallel_for(stream, x.shape()[0] * tiles, grain(n * width), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % tiles * kColumns;
        const int64_t offset = unit / tiles * n * inner + first;
        T* const to = y.data<T>() + offset;
        const T* const from = x.data<T>() + offset;
        if (inner == 1)
          running_sums(to, from, n, inner, std::integral_constant<int64_t, 1>{}, reverse);
        else
          running_sums(to, from, n, inner, std::min(kColumns, inner - first), reverse);
      }
    });
  });
}

// ---- order --------------------------------------------------------------------------------------

// An element and its position, packed into unsigned integers. Their order is that of the elements,
// and equal elements have equal keys.
template <class Key>
struct Placed {
  Key key;
  Key place;
  bool operator<(const Placed& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
};

// NaN is the largest. Below it numbers are ordered as their bits; the order of negative bits is
// reversed.
template <class Key, class A>
Key sort_key(A value) {
  if constexpr (std::is_floating_point_v<A>) {
    using Bits = std::conditional_t<sizeof(A) == 4, uint32_t, uint64_t>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(A) - 1);
    const Bits bits = std::bit_cast<Bits>(value + 0);  // maps -0 to 0
    return value != value ? ~Bits{0} : bits & kSign ? ~bits : bits | kSign;
  } else {
    constexpr Key kLeast = static_cast<Key>(std::numeric_limits<A>::min());
    return static_cast<Key>(value) - kLeast;
  }
}

// Sorts n elements byte by byte, from the lowest. Each pass is stable. Returns `from` or `to`,
// whichever holds the result; both are used.
template <class Key>
Placed<Key>* sort_by_bytes(Placed<Key>* from, Placed<Key>* to, int64_t n) {
  for (unsigned shift = 0; shift < 8 * sizeof(Key); shift += 8) {
    const auto byte = [shift](const Placed<Key>& x) {
      return static_cast<uint8_t>(x.key >> shift);
    };
    // The position at which the elements with each byte begin, after those with lower bytes.
    int64_t next[257] = {};
    for (int64_t i = 0; i < n; ++i) ++next[byte(from[i]) + 1];
    if (next[byte(from[0]) + 1] == n) continue;  // all are equal
    for (int b = 0; b < 256; ++b) next[b + 1] += next[b];
    for (int64_t i = 0; i < n; ++i) to[next[byte(from[i])]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// index[j] = the position of the j-th element in sorted order, for the first k of n.
template <class Key, class T>
void order_column(int64_t* index, int64_t k, const T* x, int64_t n, int64_t stride, bool descending,
                  Placed<Key>* elements) {
  for (int64_t i = 0; i < n; ++i) {
    const Key key = sort_key<Key>(static_cast<Accumulator<T>>(x[i * stride]));
    elements[i] = {descending ? static_cast<Key>(~key) : key, static_cast<Key>(i)};
  }
  constexpr int64_t kFew = 128;  // below this, counting bytes does not pay
  if (n < kFew || k < n / 8)
    std::partial_sort(elements, elements + k, elements + n);
  else
    elements = sort_by_bytes(elements, elements + n, n);
  for (int64_t j = 0; j < k; ++j) index[j * stride] = static_cast<int64_t>(elements[j].place);
}

template <class Key, class T>
void order_columns(Stream stream, const Tensor& index, const Tensor& x, bool descending) {
  const int64_t n = x.shape()[1];
  const int64_t k = index.shape()[1];
  const int64_t inner = x.shape()[2];
  parallel_for(stream, x.shape()[0] * inner, grain(16 * n), [&](int64_t begin, int64_t end) {
    const Workspace<Placed<Key>> elements(stream, 2 * n);
    for (int64_t column = begin; column < end; ++column) {
      const int64_t outer = column / inner;
      const int64_t first = column % inner;
      order_column<Key>(index.data<int64_t>() + outer * k * inner + first, k,
                        x.data<T>() + outer * n * inner + first, n, inner, descending,
                        elements.data());
    }
  });
}

void argsort_cpu(Stream stream, const Tensor& index, const Tensor& x, bool descending) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && index.is_contiguous());
  if (x.numel() == 0) return;
  visit_dtype("argsort", x.dtype(), [&]<class T>() {
    if constexpr (sizeof(T) <= 4)
      if (x.shape()[1] <= std::numeric_limits<uint32_t>::max())
        return order_columns<uint32_t, T>(stream, index, x, descending);
    order_columns<uint64_t, T>(stream, index, x, descending);
  });
}

REGISTER_KERNEL(cumsum, CPU, Native, cumsum_cpu);
REGISTER_KERNEL(argsort, CPU, Native, argsort_cpu);

}  // namespace
}  // namespace ringgrad::cpu
