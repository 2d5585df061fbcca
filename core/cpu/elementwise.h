// map(): y[i] = f(x1[i], x2[i], …) over tensors of one shape, in parallel, with vectorisable inner loops.
// Private to core/cpu. A kernel is then one line: map<T>(stream, y, [](auto x) { return std::exp(x); }, x).
#pragma once

#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels/loop_plan.h"

namespace ringgrad::cpu {

inline constexpr int64_t kElementwiseGrain = 16384;  // elements per unit: 64 KiB of float32, a few microseconds

// One run of n elements. The common cases get loops of their own, whose strides the compiler knows. (f is a copy, so
// that it also knows that no store changes what f holds: else a condition in f would be a jump for each element.)
template <class Out, class T, class F, class... X>
void map_run(int64_t n, F f, Out* y, int64_t y_stride, std::pair<const X*, int64_t>... x) {
  using A = Accumulator<T>;
  if (y_stride == 1 && ((x.second == 1) && ...)) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(static_cast<A>(x.first[i])...));
  } else if (y_stride == 1 && ((x.second == 1 || x.second == 0) && ...)) {  // some inputs are broadcast
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(static_cast<A>(x.first[x.second ? i : 0])...));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = static_cast<Out>(f(static_cast<A>(x.first[i * x.second])...));
  }
}

template <class Out, class T, class F, class... Inputs, size_t... I>
void map_units(Stream stream, const Tensor& y, F& f, std::index_sequence<I...>, const Inputs&... x) {
  const LoopPlan plan = plan_loops({&y, &x...});
  if (plan.dims == 0) return;
  Out* const y_data = y.data<Out>();
  const T* const x_data[] = {x.template data<T>()..., nullptr};
  parallel_for(stream, plan.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t run = std::min(end - begin, plan.inner_size() - begin % plan.inner_size());
      const auto offsets = plan.offsets(begin);
      map_run<Out, T>(run, f, y_data + offsets[0], plan.inner_stride(0),
                      std::pair<const T*, int64_t>(x_data[I] + offsets[I + 1], plan.inner_stride(I + 1))...);
      begin += run;
    }
  });
}

// f receives and returns Accumulator<T>: float for the 16-bit types.
template <class T, class F, class... Inputs>
void map(Stream stream, const Tensor& y, F f, const Inputs&... x) {
  map_units<T, T>(stream, y, f, std::index_sequence_for<Inputs...>{}, x...);
}
// The same with an output of another type.
template <class Out, class T, class F, class... Inputs>
void map_to(Stream stream, const Tensor& y, F f, const Inputs&... x) {
  map_units<Out, T>(stream, y, f, std::index_sequence_for<Inputs...>{}, x...);
}

}  // namespace ringgrad::cpu
