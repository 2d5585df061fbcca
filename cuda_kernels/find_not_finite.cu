// Finds the first NaN or infinity. The record stays on the device, so the host does not wait.
//
// Mapping: a thread tests one element and continues in strides of the whole grid, up to the first
// that it finds. Nearly always there is none, so the single atomic minimum costs nothing.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    find_not_finite_kernel(int64_t n, long long* record, const T* x, int64_t base) {
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    const Compute<T> value = widen(x[i]);
    if (value - value == 0) continue;  // infinity - infinity is NaN
    atomicMin(record, static_cast<long long>(base + i));
    return;
  }
}

void find_not_finite_cuda(Stream stream, const Tensor& record, const Tensor& x, int64_t base) {
  ASSERT(x.is_contiguous() && record.numel() == 1);
  visit_floating("find_not_finite", x.dtype(), [&]<class T>() {
    launch_elements(stream, x.numel(), find_not_finite_kernel<Element<T>>, x.numel(),
                    reinterpret_cast<long long*>(record.data<int64_t>()), device_data<T>(x), base);
  });
}

REGISTER_KERNEL(find_not_finite, CUDA, Native, find_not_finite_cuda);

}  // namespace
}  // namespace ringgrad::cuda
