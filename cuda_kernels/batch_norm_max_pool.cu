// Batch normalisation and max pooling of images, NCHW or NHWC, in one pass.
//
// Mapping: one thread per element of the output, as in pool2d.cu. The output is y forward and dx
// backward, where each pixel checks whether it was the maximum of its window.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/batch_norm.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_max_pool_kernel(Image y_shape, Image x_shape, int64_t window, Normalise<T> normalise,
                               bool relu, T* y, T* winners, int32_t* index, const T* x) {
  for (int64_t i = thread_number(); i < y_shape.numel(); i += thread_count()) {
    const auto [n, c, p, q] = y_shape.place(i);
    const auto line = normalise.line(c);
    int64_t best_h = p * window;
    int64_t best_w = q * window;
    Compute<T> best = line(widen(x[x_shape.at(n, c, best_h, best_w)]));
    for (int64_t h = p * window; h < (p + 1) * window; ++h)
      for (int64_t w = q * window; w < (q + 1) * window; ++w) {
        const Compute<T> value = line(widen(x[x_shape.at(n, c, h, w)]));
        // Takes a value that is larger, or the first NaN. Of equal values the first in row order
        // stays.
        if (!(value > best) && !(value != value && best == best)) continue;
        best = value;
        best_h = h;
        best_w = w;
      }
    y[i] = narrow<T>(relu && best < 0 ? Compute<T>(0) : best);
    winners[i] = x[x_shape.at(n, c, best_h, best_w)];
    index[i] = static_cast<int32_t>(best_h * x_shape.W + best_w);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_max_pool_backward_kernel(Image dx_shape, Image dy_shape, int64_t window,
                                        BackwardTerms<T> terms, T* dx, const T* dy,
                                        const int32_t* index, const T* x, const T* y) {
  for (int64_t i = thread_number(); i < dx_shape.numel(); i += thread_count()) {
    const auto [n, c, h, w] = dx_shape.place(i);
    const int64_t p = h / window;
    const int64_t q = w / window;
    Compute<T> g = 0;
    if (p < dy_shape.H && q < dy_shape.W) {
      const int64_t from = dy_shape.at(n, c, p, q);
      if (index[from] == h * dx_shape.W + w && (!y || widen(y[from]) > 0)) g = widen(dy[from]);
    }
    dx[i] = narrow<T>(terms.line(c)(g, widen(x[i])));
  }
}

void batch_norm_max_pool_cuda(Stream stream, const Tensor& y, const Tensor& winners,
                              const Tensor& index, const Tensor& x, const Tensor& mean,
                              const Tensor& var, const Tensor& weight, const Tensor& bias,
                              double eps, bool relu, int64_t window) {
  ASSERT(is_image(x) && is_image(y) && same_memory(winners, y) && same_memory(index, y));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Normalise<Element<T>> normalise{device_data<A>(mean), device_data<A>(var),
                                          optional_data<A>(weight), optional_data<A>(bias),
                                          static_cast<A>(eps)};
    launch_elements(stream, y.numel(), batch_norm_max_pool_kernel<Element<T>>, Image(y), Image(x),
                    window, normalise, relu, device_data<T>(y), device_data<T>(winners),
                    index.data<int32_t>(), device_data<T>(x));
  });
}

void batch_norm_max_pool_backward_cuda(Stream stream, const Tensor& dx, const Tensor& dy,
                                       const Tensor& index, const Tensor& x, const Tensor& y,
                                       const Tensor& mean, const Tensor& var, const Tensor& weight,
                                       const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                       double count, int64_t window) {
  ASSERT(is_image(dx) && same_memory(x, dx) && is_image(dy) && same_memory(index, dy));
  ASSERT(!y.defined() || same_memory(y, dy));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const BackwardTerms<Element<T>> terms{device_data<A>(mean),        device_data<A>(var),
                                          optional_data<A>(weight),    device_data<A>(sum_dy),
                                          device_data<A>(sum_dy_xhat), static_cast<A>(eps),
                                          static_cast<A>(1 / count)};
    launch_elements(stream, dx.numel(), batch_norm_max_pool_backward_kernel<Element<T>>, Image(dx),
                    Image(dy), window, terms, device_data<T>(dx), device_data<T>(dy),
                    index.data<int32_t>(), device_data<T>(x), optional_data<T>(y));
  });
}

REGISTER_KERNEL(batch_norm_max_pool, CUDA, Native, batch_norm_max_pool_cuda);
REGISTER_KERNEL(batch_norm_max_pool_backward, CUDA, Native, batch_norm_max_pool_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
