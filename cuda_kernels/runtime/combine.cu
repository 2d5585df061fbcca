// Mapping: a thread handles one element and continues in strides of the whole grid. Segments may
// begin at any element, so there are no wider loads. Neighbouring threads still read neighbouring
// elements.
#include "ringgrad/cuda_kernels/runtime/combine.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/numbers.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class A>
__device__ A combined(Combination combination, A a, A b) {
  switch (combination) {
    case Combination::Min: return a < b || a != a ? a : b;
    case Combination::Max: return a > b || a != a ? a : b;
    default: return static_cast<A>(a + b);
  }
}

// A floating sum is multiplied by 1 / divisor, as on the CPU.
template <class Y, class T, class In>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(int64_t n, Y* y, const T* own, const In* incoming, Combination combination,
                   int divisor) {
  using A = Compute<T>;
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    const A value = combined<A>(combination, widen(own[i]), widen(incoming[i]));
    if constexpr (std::is_integral_v<A>)
      y[i] = static_cast<A>(value / divisor);
    else
      y[i] = narrow<Y>(value * (A(1) / static_cast<A>(divisor)));
  }
}

// The types of y and of incoming are T or Partial; for most T these are the same.
template <class Partial, class T, class Body>
void visit_types(DType y, DType incoming, Body body) {
  const auto with_y = [&]<class Y>() {
    incoming == dtype_of<T> ? body.template operator()<Y, T>()
                            : body.template operator()<Y, Partial>();
  };
  y == dtype_of<T> ? with_y.template operator()<T>() : with_y.template operator()<Partial>();
}

}  // namespace

DType partial_dtype(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16 ? DType::Float32 : dtype;
}

void combine(Stream stream, const Tensor& y, const Tensor& own, const Tensor& incoming,
             Combination combination, int divisor) {
  const int64_t n = own.numel();
  for (const Tensor* x : {&y, &incoming})
    ASSERT(x->numel() == n && x->is_contiguous() &&
           (x->dtype() == own.dtype() || x->dtype() == partial_dtype(own.dtype())));
  ASSERT(own.is_contiguous() && divisor > 0);
  visit_number("all_reduce", own.dtype(), [&]<class T>() {
    using Partial = std::conditional_t<std::is_integral_v<T>, T, ComputeOf<T>>;
    visit_types<Partial, T>(y.dtype(), incoming.dtype(), [&]<class Y, class In>() {
      launch_elements(stream, n, combine_kernel<Element<Y>, Element<T>, Element<In>>, n,
                      device_data<Y>(y), device_data<T>(own), device_data<In>(incoming),
                      combination, divisor);
    });
  });
}

}  // namespace ringgrad::cuda
