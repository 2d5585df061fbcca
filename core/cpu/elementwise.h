// map(): y[i] = f(x1[i], x2[i], …) over tensors of one shape, in parallel, with one vectorised
// inner loop. Private to core/cpu. A kernel is then one line: CpuMaps::map<T>(stream, y, [](auto x)
// { return std::exp(x); }, x).
#pragma once

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels/loop_plan.h"

namespace ringgrad::cpu {

// Elements per unit: 64 KiB of float32, a few microseconds.
inline constexpr int64_t kElementwiseGrain = 16384;

// An operand that is not contiguous is copied into the first-level cache, this many elements at a
// time. Separate loops for strides, and for each way in which operands may be broadcast, would be
// five times as much code to compile.
inline constexpr int64_t kPiece = 256;

// 16-bit numbers are copied as float, because g++ does not vectorise float16 and vectorises
// bfloat16 poorly.
template <class T>
using Piece = std::conditional_t<kIs16Bit<T>, float, T>;

// Returns a pointer to the n elements from `first` on as neighbours: in x, or in `piece`, into
// which they are copied. If the stride is 0, `row` elements are repeated, and this is called for
// the first piece alone.
template <class T>
[[gnu::noinline]] const Piece<T>* neighbours(const T* x, int64_t stride, int64_t row, int64_t first,
                                             int64_t n, Piece<T>* piece) {
  if (stride == 1) {
    if constexpr (kIs16Bit<T>)
      conv::convert(piece, x + first, n);
    else
      return x + first;
  } else if (stride != 0) {
    for (int64_t i = 0; i < n; ++i) piece[i] = x[(first + i) * stride];
  } else if (row == 1) {
    std::fill_n(piece, n, Piece<T>(*x));
  } else {
    for (int64_t i = 0; i < n; i += row)
      for (int64_t j = 0; j < std::min(row, n - i); ++j) piece[i + j] = x[j];
  }
  return piece;
}

template <class T>
[[gnu::noinline]] void scatter(const Piece<T>* piece, int64_t n, T* y, int64_t stride) {
  if constexpr (kIs16Bit<T>)
    if (stride == 1) return conv::convert(y, piece, n);
  for (int64_t i = 0; i < n; ++i) y[i * stride] = static_cast<T>(piece[i]);
}

// Computes y[i] = f(x[0][i], x[1][i], …) over n neighbours.
template <class Y, class X>
using FormulaLoop = void (*)(const void* f, int64_t n, Y* y, const X* const* x);

// Returns the only code that is compiled for each formula. All else depends on types and the number
// of operands alone, and float's loop serves the 16-bit types. f is a copy, so that the compiler
// knows that no store changes it. Otherwise a condition in f would be a jump for each element.
template <class A, class Y, class X, class F, size_t... I>
FormulaLoop<Y, X> loop_of(const F&, std::index_sequence<I...>) {
  return [](const void* formula, int64_t n, Y* y, [[maybe_unused]] const X* const* x) {
    const F f = *static_cast<const F*>(formula);
    [[maybe_unused]] const X* const from[] = {x[I]..., nullptr};
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(f(static_cast<A>(from[I][i])...));
  };
}

// Computes one run of n elements, in rows of `row`.
template <class Out, class T, int kInputs>
void map_run(FormulaLoop<Piece<Out>, Piece<T>> loop, const void* f, int64_t n, int64_t row, Out* y,
             int64_t y_stride, const std::pair<const T*, int64_t>* x) {
  Piece<T> pieces[kInputs + 1][kPiece];
  Piece<Out> results[kPiece];
  bool in_place = !kIs16Bit<T> && !kIs16Bit<Out> && y_stride == 1;
  for (int i = 0; i < kInputs; ++i) in_place &= x[i].second == 1;
  const int64_t most = in_place ? n : kPiece / row * row;
  const Piece<T>* from[kInputs + 1] = {};
  for (int64_t first = 0; first < n; first += most) {
    const int64_t count = std::min(most, n - first);
    for (int i = 0; i < kInputs; ++i)
      if (first == 0 || x[i].second != 0)
        from[i] = neighbours(x[i].first, x[i].second, row, first, count, pieces[i]);
    Piece<Out>* to = results;
    if constexpr (!kIs16Bit<Out>)
      if (y_stride == 1) to = y + first;
    loop(f, count, to, from);
    if (to == results) scatter<Out>(results, count, y + first * y_stride, y_stride);
  }
}

// Short rows of y, one behind the other, and operands that lie likewise or have one row for all of
// them, such as one number for each of the 16 channels of a block: so many elements of the
// innermost loop are a row, and many rows are a run. 1 elsewhere: nothing is a row.
inline int64_t short_row(const LoopPlan& plan) {
  constexpr int64_t kMost = kPiece / 4;
  const int64_t row = plan.inner_size();
  if (plan.dims < 2 || row > kMost) return 1;
  for (int i = 0; i < plan.operands; ++i) {
    const int64_t next = plan.strides[i][plan.dims - 2];
    if (plan.inner_stride(i) != 1 || !(next == row || (i > 0 && next == 0))) return 1;
  }
  return row;
}

template <class Out, class T, int kInputs>
void map_units(Stream stream, LoopPlan plan, Out* y, const T* const* x,
               FormulaLoop<Piece<Out>, Piece<T>> loop, const void* f) {
  const int64_t row = short_row(plan);
  if (row > 1) {
    --plan.dims;
    plan.numel /= row;
  }
  const auto stride = [&plan, row](int operand) {
    const int64_t next = plan.inner_stride(operand);
    return row == 1 || next == 0 ? next : 1;
  };
  parallel_for(stream, plan.numel, kElementwiseGrain / row, [&](int64_t begin, int64_t end) {
    plan.for_each_run<kInputs + 1>(begin, end, [&](const auto& offsets, int64_t run) {
      std::pair<const T*, int64_t> from[kInputs + 1];
      for (int i = 0; i < kInputs; ++i) from[i] = {x[i] + offsets[i + 1], stride(i + 1)};
      map_run<Out, T, kInputs>(loop, f, run * row, row, y + offsets[0], stride(0), from);
    });
  });
}

// Gives these loops to the formulas of core/kernels/elementwise_*.h. f receives and returns
// Accumulator<T>: float for the 16-bit types.
struct CpuMaps {
  template <class Out, class T, class F, class... Inputs>
  static void map_to(Stream stream, const Tensor& y, const F& f, const Inputs&... x) {
    const LoopPlan plan = plan_loops({&y, &x...});
    if (plan.dims == 0) return;
    const T* const inputs[] = {x.template data<T>()..., nullptr};
    const auto loop =
        loop_of<Accumulator<T>, Piece<Out>, Piece<T>>(f, std::index_sequence_for<Inputs...>());
    map_units<Out, T, sizeof...(x)>(stream, plan, y.data<Out>(), inputs, loop, &f);
  }
  template <class T, class F, class... Inputs>
  static void map(Stream stream, const Tensor& y, const F& f, const Inputs&... x) {
    map_to<T, T>(stream, y, f, x...);
  }
};

}  // namespace ringgrad::cpu
