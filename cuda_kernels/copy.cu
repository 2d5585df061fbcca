// Copies between dtypes, strides and layouts on one device, between devices, and from and to the
// host.
//
// Mapping: the copy engine copies dense tensors of one dtype. Other copies are elementwise maps.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/map.cuh"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/cuda_kernels/runtime/host_copy.h"

namespace ringgrad::cuda {
namespace {

template <class A>
struct Identity {
  __device__ A operator()(A x) const { return x; }
};

// There is one kernel for each type of y, which tests x's type at run time: 8 kernels instead of
// 64. All threads take the same branch, and the time goes into memory.
template <class Y>
__device__ Y load_as(const void* x, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::Float32: return narrow<Y>(static_cast<const float*>(x)[i]);
    case DType::Float64: return narrow<Y>(static_cast<const double*>(x)[i]);
    case DType::BFloat16: return narrow<Y>(widen(static_cast<const __nv_bfloat16*>(x)[i]));
    case DType::Float16: return narrow<Y>(widen(static_cast<const __half*>(x)[i]));
    case DType::Int64: return narrow<Y>(static_cast<const int64_t*>(x)[i]);
    case DType::Int32: return narrow<Y>(static_cast<const int32_t*>(x)[i]);
    case DType::UInt8: return narrow<Y>(static_cast<const uint8_t*>(x)[i]);
    default: return narrow<Y>(widen(static_cast<const bool*>(x)[i]));
  }
}

template <class Y>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(int64_t n, StridedIndex<2> index, Y* y, const void* x, DType dtype) {
  for (int64_t i = thread_number(); i < n; i += thread_count()) {
    const auto at = index.offsets(i);
    y[at.of[0]] = load_as<Y>(x, dtype, at.of[1]);
  }
}

// Returns true if both have the same elements in the same order without gaps, so that copying the
// bytes copies the tensor.
bool same_bytes(const Tensor& y, const Tensor& x) {
  return y.dtype() == x.dtype() && y.is_channel_blocked() == x.is_channel_blocked() &&
         y.flat_numel() > 0 && y.flat_numel() == x.flat_numel() &&
         (y.is_channel_blocked() || y.strides() == x.strides() || same_memory(y, x));
}

size_t bytes_of(const Tensor& x) {
  return static_cast<size_t>(x.flat_numel()) * itemsize(x.dtype());
}

void copy_bytes(Stream stream, const Tensor& y, const Tensor& x) {
  const DeviceGuard guard(stream.device);
  CUDA_CHECK(
      cudaMemcpyAsync(y.raw_data(), x.raw_data(), bytes_of(y), cudaMemcpyDefault, native(stream)));
}

// Copies between y and x, both strided or both channel-blocked, on the stream's device.
void copy_elements(Stream stream, const Tensor& y, const Tensor& x) {
  const DType to = y.dtype();
  const DType from = x.dtype();
  const auto cast_to = [&]<class Y, class X>() { map_to<Y, X>(stream, y, Identity<float>{}, x); };
  // The conversions of mixed precision are frequent, so they read and write vectors.
  if (to == DType::BFloat16 && from == DType::Float32) return cast_to.operator()<bfloat16, float>();
  if (to == DType::Float16 && from == DType::Float32) return cast_to.operator()<float16, float>();
  if (to == DType::Float32 && from == DType::BFloat16) return cast_to.operator()<float, bfloat16>();
  if (to == DType::Float32 && from == DType::Float16) return cast_to.operator()<float, float16>();
  const LoopPlan plan = plan_loops({&y, &x});
  if (plan.dims == 0) return;
  visit_dtype("copy", to, [&]<class Y>() {
    launch_elements(stream, plan.numel, copy_kernel<Element<Y>>, plan.numel, StridedIndex<2>(plan),
                    device_data<Y>(y), x.raw_data(), from);
  });
}

// Returns `channels` channels from `first` on, a multiple of 16, as [N, blocks, channels of a
// block, H, W]. Channel-blocked memory is a strided array [N, C/16, 16, H, W].
Tensor channels_of(const Tensor& x, int64_t first, int64_t blocks, int64_t channels) {
  const Shape& s = x.shape();
  const Shape shape{s[0], blocks, channels, s[2], s[3]};
  if (!x.is_channel_blocked()) {
    const Strides& t = x.strides();
    return Tensor(x.storage(), shape, {t[0], t[1] * kChannelBlock, t[1], t[2], t[3]},
                  x.storage_offset() + first * t[1], x.dtype());
  }
  const int64_t row = s[3] * kChannelBlock;
  const int64_t block = s[2] * row;
  const int64_t all_blocks = (s[1] + kChannelBlock - 1) / kChannelBlock;
  return Tensor(x.storage(), shape, {all_blocks * block, block, 1, row, kChannelBlock},
                x.storage_offset() + first / kChannelBlock * block, x.dtype());
}

void copy_blocked(Stream stream, const Tensor& y, const Tensor& x) {
  const int64_t channels = x.shape()[1];
  const int64_t whole = channels / kChannelBlock;
  const int64_t rest = channels % kChannelBlock;
  if (rest && y.is_channel_blocked()) kernels::fill(y, 0);  // the channels beyond C hold zeros
  if (whole)
    copy_elements(stream, channels_of(y, 0, whole, kChannelBlock),
                  channels_of(x, 0, whole, kChannelBlock));
  if (!rest) return;
  const int64_t first = whole * kChannelBlock;
  copy_elements(stream, channels_of(y, first, 1, rest), channels_of(x, first, 1, rest));
}

void copy_on_device(Stream stream, const Tensor& y, const Tensor& x) {
  if (same_bytes(y, x))
    copy_bytes(stream, y, x);
  else if (y.is_channel_blocked() != x.is_channel_blocked())
    copy_blocked(stream, y, x);
  else
    copy_elements(stream, y, x);
}

// Returns a dense tensor on x's device with x's values and y's dtype and layout. It can be sent to
// y's device as bytes.
Tensor sendable(const Tensor& y, const Tensor& x) {
  if (same_bytes(y, x)) return x;
  const Tensor packed = empty(y.shape(), {y.dtype(), x.device(), y.layout()});
  kernels::copy(packed, x);
  return packed;
}

// Copies x, on another device or on the host, to y on the stream's device.
void receive(Stream stream, const Tensor& y, const Tensor& x) {
  const Tensor sent = sendable(y, x);
  const bool direct = same_bytes(y, sent);
  const Tensor arrived = direct ? y : empty(y.shape(), {y.dtype(), y.device(), y.layout()});
  if (x.device().is_cuda()) {
    const Stream producer = current_stream(x.device());
    wait_for(stream, producer);
    copy_bytes(stream, arrived, sent);
    // On its own stream `sent` may be freed and overwritten only after the copy.
    wait_for(producer, stream);
  } else {
    CHECK(!capturing(),
          "copy: a copy from the host cannot be part of a captured graph; copy before capturing");
    copy_from_host(stream, arrived.raw_data(), sent.raw_data(), bytes_of(arrived));
  }
  if (!direct) copy_on_device(stream, y, arrived);
}

void copy_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(y.shape() == x.shape());
  if (y.numel() == 0) return;
  if (x.device() == y.device())
    copy_on_device(stream, y, x);
  else
    receive(stream, y, x);
}

// The copy is complete on return, so the host may read y.
void copy_to_host_cuda(Stream stream, const Tensor& x, const Tensor& y) {
  ASSERT(y.shape() == x.shape() && y.device().is_cpu());
  if (y.numel() == 0) return;
  const Tensor sent = sendable(y, x);
  const bool direct = same_bytes(y, sent);
  const Tensor arrived = direct ? y : empty(y.shape(), {y.dtype(), y.device(), y.layout()});
  copy_to_host(stream, arrived.raw_data(), sent.raw_data(), bytes_of(arrived));
  if (!direct) kernels::copy(y, arrived);
}

REGISTER_KERNEL(copy, CUDA, Native, copy_cuda);
REGISTER_KERNEL(copy_to_host, CUDA, Native, copy_to_host_cuda);

}  // namespace
}  // namespace ringgrad::cuda
