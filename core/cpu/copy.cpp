// Copies on the CPU: between dtypes, strides, logical devices, and to and from the channel-blocked layout.
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv/blocked_images.h"
#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class Y, class X>
Y convert(X value) {
  if constexpr (std::is_same_v<Y, bool>)
    return static_cast<Accumulator<X>>(value) != 0;
  else
    return number<Y>(static_cast<Accumulator<X>>(value));
}

template <class Y, class X>
void copy_elements(Stream stream, const Tensor& y, const Tensor& x) {
  const LoopPlan plan = plan_loops({&y, &x});
  if (plan.dims == 0) return;
  Y* const y_data = y.data<Y>();
  const X* const x_data = x.data<X>();
  parallel_for(stream, plan.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t n = std::min(end - begin, plan.inner_size() - begin % plan.inner_size());
      const auto offsets = plan.offsets(begin);
      Y* to = y_data + offsets[0];
      const X* from = x_data + offsets[1];
      const int64_t to_step = plan.inner_stride(0), from_step = plan.inner_stride(1);
      if (to_step == 1 && from_step == 1) {
        if constexpr (std::is_same_v<Y, X>)
          std::memcpy(to, from, n * sizeof(Y));
        else
          for (int64_t i = 0; i < n; ++i) to[i] = convert<Y>(from[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) to[i * to_step] = convert<Y>(from[i * from_step]);
      }
      begin += n;
    }
  });
}

// Between a strided tensor (any strides) and a channel-blocked one of the same dtype. A unit is one block of 16
// channels of one image: 16 planes on the strided side.
template <class T, bool kToBlocked>
void reorder(Stream stream, const Tensor& strided, const Tensor& blocked) {
  const auto& shape = strided.shape();
  const auto& stride = strided.strides();
  const int64_t channels = shape[1], height = shape[2], width = shape[3];
  const int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  T* const plain = strided.data<T>();
  T* const packed = blocked.data<T>();
  if constexpr (std::is_same_v<T, float>)  // by transposed registers: five times as fast
    if (strided.is_contiguous())
      return kToBlocked ? conv::nchw_to_blocked(stream, shape[0], channels, height, width, plain, packed)
                        : conv::blocked_to_nchw(stream, shape[0], channels, height, width, packed, plain);
  parallel_for(stream, shape[0] * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / blocks, first = unit % blocks * kChannelBlock;
      const int64_t used = std::min(kChannelBlock, channels - first);
      T* pixel = packed + unit * height * width * kChannelBlock;
      for (int64_t h = 0; h < height; ++h)
        for (int64_t w = 0; w < width; ++w, pixel += kChannelBlock) {
          T* from = plain + n * stride[0] + first * stride[1] + h * stride[2] + w * stride[3];
          for (int64_t c = 0; c < used; ++c) {
            if constexpr (kToBlocked)
              pixel[c] = from[c * stride[1]];
            else
              from[c * stride[1]] = pixel[c];
          }
          if constexpr (kToBlocked)
            for (int64_t c = used; c < kChannelBlock; ++c) pixel[c] = T{};
        }
    }
  });
}

void copy_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(y.shape() == x.shape() && x.device().is_cpu());
  if (y.is_channel_blocked() != x.is_channel_blocked()) {
    Tensor source = x;
    if (x.dtype() != y.dtype()) {
      source = empty(x.shape(), {y.dtype(), y.device(), x.layout()});
      copy_cpu(stream, source, x);
    }
    visit_dtype("copy", y.dtype(), [&]<class T>() {
      if (y.is_channel_blocked())
        reorder<T, true>(stream, source, y);
      else
        reorder<T, false>(stream, y, source);
    });
    return;
  }
  visit_dtype("copy", y.dtype(), [&]<class Y>() {
    visit_dtype("copy", x.dtype(), [&]<class X>() { copy_elements<Y, X>(stream, y, x); });
  });
}

void copy_to_host_cpu(Stream stream, const Tensor& x, const Tensor& host_y) { copy_cpu(stream, host_y, x); }

REGISTER_KERNEL(copy, DeviceType::CPU, Provider::Native, copy_cpu);
REGISTER_KERNEL(copy_to_host, DeviceType::CPU, Provider::Native, copy_to_host_cpu);

}  // namespace
}  // namespace ringgrad::cpu
