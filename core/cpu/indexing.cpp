// Rows and elements chosen by an index, and their adjoints, on the CPU. An index outside is skipped.
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

// x [outer, n, inner] and y [outer, m, inner]; the index names a place in n for each place in m.
struct Indexed {
  int64_t outer, n, m, inner;
  Indexed(const Tensor& x, const Tensor& y, const Tensor& index)
      : outer(x.shape()[0]), n(x.shape()[1]), m(y.shape()[1]), inner(x.shape()[2]) {
    ASSERT(x.is_contiguous() && y.is_contiguous() && index.is_contiguous() && x.dtype() == y.dtype());
    ASSERT(index.dtype() == DType::Int64 && y.shape()[0] == outer && y.shape()[2] == inner);
  }
  bool holds(int64_t i) const { return i >= 0 && i < n; }
};

void index_select_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  const Indexed s(x, y, index);
  const int64_t* const at = index.data<int64_t>();
  const size_t bytes = s.inner * itemsize(x.dtype());
  const char* const from = static_cast<const char*>(x.raw_data());
  char* const to = static_cast<char*>(y.raw_data());
  parallel_for(stream, s.outer * s.m, grain(s.inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = at[row % s.m];
      if (s.holds(i)) std::memcpy(to + row * bytes, from + (row / s.m * s.n + i) * bytes, bytes);
    }
  });
}

void gather_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  const Indexed s(x, y, index);
  const int64_t* const at = index.data<int64_t>();
  visit_dtype("gather", x.dtype(), [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    parallel_for(stream, s.outer * s.m, grain(4 * s.inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t i = 0; i < s.inner; ++i) {
          const int64_t place = at[row * s.inner + i];
          if (s.holds(place)) to[row * s.inner + i] = from[(row / s.m * s.n + place) * s.inner + i];
        }
    });
  });
}

// The sums of both adjoints are formed in the order of j. A unit owns a range of columns i of one o, so that no two
// threads add to the same element; place(o, j, i) is where dy[o, j, i] goes.
template <class Place>
void add_at(Stream stream, const char* name, const Tensor& dx, const Tensor& dy, const Indexed& s, const Place& place) {
  if (is_16_bit(dx)) {
    const Tensor wide = widen(dx);
    add_at(stream, name, wide, widen(dy), s, place);
    return kernels::copy(dx, wide);
  }
  constexpr int64_t kColumns = 64;  // at least a cache line, so that units do not share one
  const int64_t tiles = ceil_div(s.inner, kColumns);
  visit_dtype(name, dx.dtype(), [&]<class T>() {
    using A = Wrapping<Accumulator<T>>;
    T* const to = dx.data<T>();
    const T* const from = dy.data<T>();
    parallel_for(stream, s.outer * tiles, grain(s.m * std::min(s.inner, kColumns)), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t o = unit / tiles, first = unit % tiles * kColumns, last = std::min(s.inner, first + kColumns);
        for (int64_t j = 0; j < s.m; ++j)
          for (int64_t i = first; i < last; ++i) {
            const int64_t target = place(o, j, i);
            if (!s.holds(target)) continue;
            T& sum = to[(o * s.n + target) * s.inner + i];
            sum = static_cast<T>(static_cast<A>(sum) + static_cast<A>(from[(o * s.m + j) * s.inner + i]));
          }
      }
    });
  });
}

void index_add_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  const Indexed s(dx, dy, index);
  const int64_t* const at = index.data<int64_t>();
  add_at(stream, "index_add", dx, dy, s, [at](int64_t, int64_t j, int64_t) { return at[j]; });
}

void scatter_add_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  const Indexed s(dx, dy, index);
  const int64_t* const at = index.data<int64_t>();
  add_at(stream, "scatter_add", dx, dy, s,
         [at, &s](int64_t o, int64_t j, int64_t i) { return at[(o * s.m + j) * s.inner + i]; });
}

REGISTER_KERNEL(index_select, DeviceType::CPU, Provider::Native, index_select_cpu);
REGISTER_KERNEL(gather, DeviceType::CPU, Provider::Native, gather_cpu);
REGISTER_KERNEL(index_add, DeviceType::CPU, Provider::Native, index_add_cpu);
REGISTER_KERNEL(scatter_add, DeviceType::CPU, Provider::Native, scatter_add_cpu);

}  // namespace
}  // namespace ringgrad::cpu
