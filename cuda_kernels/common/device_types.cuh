// Element types as kernels see them: what they compute in, and how they load and store them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// float16 and bfloat16 are __half and __nv_bfloat16 on the device: the same bits. Other types are
// themselves.
template <class T>
using Element =
    std::conditional_t<std::is_same_v<T, float16>, __half,
                       std::conditional_t<std::is_same_v<T, bfloat16>, __nv_bfloat16, T>>;

// What values of T are computed in: float for the 16-bit types, int64 for bool.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                                   float, std::conditional_t<std::is_same_v<T, bool>, int64_t, T>>;

template <class T>
using ComputeOf = Compute<Element<T>>;

// The tensor's first element as a device address. Throws DTypeError when T is not its dtype.
template <class T>
Element<T>* device_data(const Tensor& x) {
  return reinterpret_cast<Element<T>*>(x.data<T>());
}
// nullptr for an undefined (optional) tensor.
template <class T>
Element<T>* optional_data(const Tensor& x) {
  return x.defined() ? device_data<T>(x) : nullptr;
}

// Whether two tensors of one shape, each contiguous or channels-last, have their elements in the
// same order.
inline bool same_memory(const Tensor& a, const Tensor& b) {
  return (a.is_contiguous() && b.is_contiguous()) || (a.is_channels_last() && b.is_channels_last());
}

template <class T>
__device__ __forceinline__ Compute<T> widen(T value) {
  return static_cast<Compute<T>>(value);
}
// Rounds to nearest, ties to even; to integers as integer(); to bool: whether it is not zero.
template <class T, class A>
__device__ __forceinline__ T narrow(A value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != A(0);
  else if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>)
    return T(static_cast<float>(value));
  else if constexpr (std::is_integral_v<T>)
    return integer<T>(value);
  else
    return static_cast<T>(value);
}

// Kernels may not call std::numeric_limits: its functions belong to the host.
template <class A>
inline constexpr A kInfinity = std::numeric_limits<A>::infinity();
template <class A>
inline constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();

// ---- loads and stores of 16 bytes at once -------------------------------------------------------
//
// A warp then moves 512 bytes per instruction, which is what it takes to use the bandwidth of the
// memory.

inline constexpr int kVectorBytes = 16;
template <class T>
inline constexpr int kVectorSize = kVectorBytes / static_cast<int>(sizeof(T));

template <class T, int kSize = kVectorSize<T>>
struct alignas(sizeof(T) * kSize) Vector {
  T element[kSize];
};

template <int kSize, class T>
__device__ __forceinline__ Vector<T, kSize> load_vector(const T* data, int64_t index) {
  return reinterpret_cast<const Vector<T, kSize>*>(data)[index];
}
template <int kSize, class T>
__device__ __forceinline__ void store_vector(T* data, int64_t index,
                                             const Vector<T, kSize>& vector) {
  reinterpret_cast<Vector<T, kSize>*>(data)[index] = vector;
}

// Whether vectors of kSize elements may be read from here on.
template <int kSize, class T>
bool is_vector_aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (sizeof(T) * kSize) == 0;
}

}  // namespace ringgrad::cuda
