// Selection of rows and elements by an index, and the gradients, on the CPU. An index outside is
// skipped.
#include <cstring>
#include <span>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
namespace {

// x [outer, n, inner] and y [outer, m, inner]. The index names a place in n for each place in m.
struct Indexed {
  int64_t outer;
  int64_t n;
  int64_t m;
  int64_t inner;
  Indexed(const Tensor& x, const Tensor& y, const Tensor& index)
      : outer(x.shape()[0]), n(x.shape()[1]), m(y.shape()[1]), inner(x.shape()[2]) {
    ASSERT(x.is_contiguous() && y.is_contiguous() && index.is_contiguous() &&
           x.dtype() == y.dtype());
    ASSERT(index.dtype() == DType::Int64 && y.shape()[0] == outer && y.shape()[2] == inner);
  }
  bool holds(int64_t i) const { return static_cast<uint64_t>(i) < static_cast<uint64_t>(n); }
};

// to[i] = from[place(at[i], i)], where at[i] is one of n places.
template <class T, class Place>
void pick_run(T* to, const T* from, const int64_t* at, int64_t count, int64_t n,
              const Place& place) {
  for (int64_t i = 0; i < count; ++i)
    if (static_cast<uint64_t>(at[i]) < static_cast<uint64_t>(n)) to[i] = from[place(at[i], i)];
}

// Selects row by row. A row is along i, or along j if there is only one i. `at` has a number for
// each element, or is the same for all rows.
void pick(Stream stream, const char* name, const Tensor& y, const Tensor& x, const int64_t* at,
          bool same_for_rows, const Indexed& s) {
  const bool along_j = s.inner == 1;
  const int64_t columns = along_j ? s.m : s.inner;
  visit_dtype(name, x.dtype(), [&]<class T>() {
    parallel_for(stream, y.numel(), grain(4), [&](int64_t begin, int64_t end) {
      for (int64_t count = 0; begin < end; begin += count) {
        const int64_t row = begin / columns;
        const int64_t first = begin % columns;
        count = std::min(columns - first, end - begin);
        T* const to = y.data<T>() + begin;
        const int64_t* const places = at + (same_for_rows ? first : begin);
        if (along_j)
          pick_run(to, x.data<T>() + row * s.n, places, count, s.n,
                   [](int64_t place, int64_t) { return place; });
        else
          pick_run(to, x.data<T>() + row / s.m * s.n * s.inner + first, places, count, s.n,
                   [&s](int64_t place, int64_t i) { return place * s.inner + i; });
      }
    });
  });
}

void index_select_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  const Indexed s(x, y, index);
  const int64_t* const at = index.data<int64_t>();
  if (s.inner == 1) return pick(stream, "index_select", y, x, at, true, s);
  const size_t bytes = s.inner * itemsize(x.dtype());
  const char* const from = static_cast<const char*>(x.raw_data());
  char* const to = static_cast<char*>(y.raw_data());
  parallel_for(stream, s.outer * s.m, grain(s.inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t first = row % s.m;
      const int64_t last = std::min(s.m, first + end - row);
      const char* const source = from + row / s.m * s.n * bytes;
      for (int64_t j = first; j < last; ++j, ++row)
        if (s.holds(at[j])) std::memcpy(to + row * bytes, source + at[j] * bytes, bytes);
    }
  });
}

void gather_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  pick(stream, "gather", y, x, index.data<int64_t>(), false, Indexed(x, y, index));
}

// Returns how many of `all` columns a unit has. Each thread gets two units, because memory prefers
// long rows. A unit has at least a cache line, so that units do not share one.
int64_t columns_of_unit(Stream stream, int64_t all) {
  return 64 * std::max<int64_t>(1, all / (128 * thread_count(stream)));
}

template <class T>
T plus(T a, T b) {
  using A = Wrapping<Accumulator<T>>;
  return static_cast<T>(static_cast<A>(a) + static_cast<A>(b));
}

// to[row[j, i], i] += from[j, i]. If there is only one i, the inner loop is along j.
template <class T>
void add_each(T* to, const T* from, const int64_t* row, const Indexed& s, int64_t first,
              int64_t last) {
  const bool along_j = s.inner == 1;
  const int64_t rows = along_j ? 1 : s.m;
  const int64_t end = along_j ? s.m : last;
  const int64_t step = along_j ? 0 : 1;
  for (int64_t j = 0; j < rows; ++j, from += s.inner, row += s.inner)
    for (int64_t i = first; i < end; ++i) {
      if (!s.holds(row[i])) continue;
      T& sum = to[row[i] * s.inner + i * step];
      sum = plus(sum, from[i]);
    }
}

// Both gradients add in the order of j, on any number of threads. In this function a unit owns a
// range of columns i of one o, so that no two threads add to the same element. `at` has a number
// for each element, or is the same for all o.
void add_at(Stream stream, const char* name, const Tensor& dx, const Tensor& dy, const Indexed& s,
            const int64_t* at, bool same_for_all) {
  if (is_16_bit(dx)) {
    const Tensor wide = widen(dx);
    add_at(stream, name, wide, widen(dy), s, at, same_for_all);
    return kernels::copy(dx, wide);
  }
  const int64_t columns = columns_of_unit(stream, s.outer * s.inner);
  const int64_t tiles = ceil_div(s.inner, columns);
  visit_dtype(name, dx.dtype(), [&]<class T>() {
    T* const to = dx.data<T>();
    const T* const from = dy.data<T>();
    parallel_for(stream, s.outer * tiles, grain(s.m * std::min(s.inner, columns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t o = unit / tiles;
                     const int64_t first = unit % tiles * columns;
                     const int64_t last = std::min(s.inner, first + columns);
                     const int64_t* const row = at + (same_for_all ? 0 : o * s.m * s.inner);
                     add_each(to + o * s.n * s.inner, from + o * s.m * s.inner, row, s, first,
                              last);
                   }
                 });
  });
}

// For each row of x, the places j whose index names it, in the order of j.
class Namings {
 public:
  Namings(Stream stream, const Indexed& s, const int64_t* at)
      : end_(stream, s.n + 1), places_(stream, s.m) {
    std::fill_n(end_.data(), s.n + 1, 0);
    for (int64_t j = 0; j < s.m; ++j)
      if (s.holds(at[j])) ++end_[at[j] + 1];
    for (int64_t row = 0; row < s.n; ++row) end_[row + 1] += end_[row];
    for (int64_t j = 0; j < s.m; ++j)  // moves each row's begin to its end
      if (s.holds(at[j])) places_[end_[at[j]]++] = j;
  }
  std::span<const int64_t> of(int64_t row) const {
    const int64_t begin = row == 0 ? 0 : end_[row - 1];
    return {places_.data() + begin, static_cast<size_t>(end_[row] - begin)};
  }

 private:
  Workspace<int64_t> end_;
  Workspace<int64_t> places_;
};

// sums += x
template <class T, class A>
void add_run(A* sums, const T* x, int64_t n) {
  int64_t i = 0;
  if constexpr (kIs16Bit<T>)
    for (; i + conv::kLanes <= n; i += conv::kLanes)
      conv::store(sums + i, conv::load(sums + i) + conv::load(x + i));
#pragma GCC ivdep
  for (; i < n; ++i) sums[i] = plus(sums[i], static_cast<A>(x[i]));
}

// Goes row by row of dx and skips the rows that no index names, which are most rows of an
// embedding.
void index_add_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  const Indexed s(dx, dy, index);
  const int64_t* const at = index.data<int64_t>();
  if (s.inner == 1) return add_at(stream, "index_add", dx, dy, s, at, true);
  const Namings namings(stream, s, at);
  constexpr int64_t kMostColumns = 512;
  const int64_t columns = std::min(kMostColumns, columns_of_unit(stream, s.outer * s.n * s.inner));
  const int64_t pieces = ceil_div(s.inner, columns);
  const int64_t named = ceil_div(s.m, std::max<int64_t>(1, s.n));
  visit_dtype("index_add", dx.dtype(), [&]<class T>() {
    using A = std::conditional_t<kIs16Bit<T>, float, T>;
    parallel_for(stream, s.outer * s.n * pieces, grain(named * std::min(s.inner, columns)),
                 [&](int64_t begin, int64_t end) {
                   [[maybe_unused]] A scratch[kMostColumns];
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t o = unit / (s.n * pieces);
                     const int64_t row = unit / pieces % s.n;
                     const int64_t first = unit % pieces * columns;
                     const auto places = namings.of(row);
                     if (places.empty()) continue;
                     const int64_t count = std::min(columns, s.inner - first);
                     T* const to = dx.data<T>() + (o * s.n + row) * s.inner + first;
                     widened<A>(to, count, scratch);
                     A* const sums = wide_results<A>(to, scratch);
                     for (const int64_t j : places)
                       add_run(sums, dy.data<T>() + (o * s.m + j) * s.inner + first, count);
                     narrow_results(to, sums, count);
                   }
                 });
  });
}

void scatter_add_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  add_at(stream, "scatter_add", dx, dy, Indexed(dx, dy, index), index.data<int64_t>(), false);
}

REGISTER_KERNEL(index_select, CPU, Native, index_select_cpu);
REGISTER_KERNEL(gather, CPU, Native, gather_cpu);
REGISTER_KERNEL(index_add, CPU, Native, index_add_cpu);
REGISTER_KERNEL(scatter_add, CPU, Native, scatter_add_cpu);

}  // namespace
}  // namespace ringgrad::cpu
