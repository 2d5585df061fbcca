// map(): y[i] = f(x1[i], x2[i], …) over tensors of one shape. An elementwise kernel is then a
// functor and one call.
//
// Mapping: if all operands are dense in the same order, a thread handles 16 bytes of consecutive
// elements at a time, in strides of the whole grid. Otherwise it handles one element at a time.
#pragma once

#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

template <int kSize, class Out, class F, class... X>
__device__ __forceinline__ Vector<Out, kSize> map_vector(const F& f, const Vector<X, kSize>&... x) {
  Vector<Out, kSize> y;
#pragma unroll
  for (int k = 0; k < kSize; ++k) y.element[k] = narrow<Out>(f(widen(x.element[k])...));
  return y;
}

template <int kSize, class Out, class F, class... X>
__global__ void __launch_bounds__(kThreads)
    map_dense_kernel(int64_t n, F f, Out* y, const X*... x) {
  const int64_t vectors = n / kSize;
  for (int64_t i = thread_number(); i < vectors; i += thread_count())
    store_vector<kSize>(y, i, map_vector<kSize, Out>(f, load_vector<kSize>(x, i)...));
  const int64_t i = vectors * kSize + thread_number();
  if (i < n) y[i] = narrow<Out>(f(widen(x[i])...));
}

template <class Out, class F, class... X>
__device__ __forceinline__ void map_element(const F& f, Out* y, const X*... x) {
  *y = narrow<Out>(f(widen(*x)...));
}

template <class Out, class F, class... X, size_t... kInputs>
__device__ __forceinline__ void map_at(const typename StridedIndex<1 + sizeof...(X)>::Offsets& at,
                                       std::index_sequence<kInputs...>, const F& f, Out* y,
                                       const X*... x) {
  map_element(f, y + at.of[0], (x + at.of[1 + kInputs])...);
}

template <class Out, class F, class... X>
__global__ void __launch_bounds__(kThreads)
    map_strided_kernel(int64_t n, StridedIndex<1 + sizeof...(X)> index, F f, Out* y,
                       const X*... x) {
  for (int64_t i = thread_number(); i < n; i += thread_count())
    map_at(index.offsets(i), std::index_sequence_for<X...>{}, f, y, x...);
}

// Out and In are core's element types. f takes Compute<In> values, and its result is rounded to
// Out.
template <class Out, class In, class F, class... Inputs>
void map_to(Stream stream, const Tensor& y, F f, const Inputs&... x) {
  constexpr int kOperands = 1 + static_cast<int>(sizeof...(Inputs));
  constexpr int kSize = std::min(kVectorSize<Out>, kVectorSize<In>);
  const LoopPlan plan = plan_loops({&y, &x...});
  if (plan.dims == 0) return;
  bool dense = plan.dims == 1 && is_vector_aligned<kSize>(y.template data<Out>()) &&
               (is_vector_aligned<kSize>(x.template data<In>()) && ...);
  for (int i = 0; i < kOperands; ++i) dense = dense && plan.inner_stride(i) == 1;
  if (dense) {
    launch_elements(
        stream, (plan.numel + kSize - 1) / kSize,
        map_dense_kernel<kSize, Element<Out>, F, std::conditional_t<true, Element<In>, Inputs>...>,
        plan.numel, f, device_data<Out>(y), device_data<In>(x)...);
  } else {
    launch_elements(
        stream, plan.numel,
        map_strided_kernel<Element<Out>, F, std::conditional_t<true, Element<In>, Inputs>...>,
        plan.numel, StridedIndex<kOperands>(plan), f, device_data<Out>(y), device_data<In>(x)...);
  }
}

template <class T, class F, class... Inputs>
void map(Stream stream, const Tensor& y, F f, const Inputs&... x) {
  map_to<T, T>(stream, y, f, x...);
}

}  // namespace ringgrad::cuda
