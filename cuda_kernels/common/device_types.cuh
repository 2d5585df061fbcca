// Element types in kernels: the types in which they compute, and how they load and store.
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

// On the device float16 and bfloat16 are __half and __nv_bfloat16, with the same bits. Other types
// stay the same.
template <class T>
using Element =
    std::conditional_t<std::is_same_v<T, float16>, __half,
                       std::conditional_t<std::is_same_v<T, bfloat16>, __nv_bfloat16, T>>;

// The type in which values of T are computed: float for the 16-bit types, int64 for bool.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                                   float, std::conditional_t<std::is_same_v<T, bool>, int64_t, T>>;

template <class T>
using ComputeOf = Compute<Element<T>>;

// Returns the address of the tensor's first element on the device. Throws DTypeError if T is not
// its dtype.
template <class T>
Element<T>* device_data(const Tensor& x) {
  return reinterpret_cast<Element<T>*>(x.data<T>());
}
// Returns nullptr for an undefined (optional) tensor.
template <class T>
Element<T>* optional_data(const Tensor& x) {
  return x.defined() ? device_data<T>(x) : nullptr;
}

// Returns true if two tensors of one shape, each contiguous or channels-last, have their elements
// in the same order.
inline bool same_memory(const Tensor& a, const Tensor& b) {
  return (a.is_contiguous() && b.is_contiguous()) || (a.is_channels_last() && b.is_channels_last());
}

template <class T>
__device__ __forceinline__ Compute<T> widen(T value) {
  return static_cast<Compute<T>>(value);
}
// Rounds to nearest, ties to even. Integers convert like integer(). bool is true unless the value
// is zero.
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

// Kernels may not call the functions of std::numeric_limits, because these are host functions.
template <class A>
inline constexpr A kInfinity = std::numeric_limits<A>::infinity();
template <class A>
inline constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();

// ---- loads and stores of 16 bytes at once -------------------------------------------------------
//
// A warp then moves 512 bytes per instruction, which is needed to use the memory's bandwidth.

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

// Returns true if vectors of kSize elements may be read from here on.
template <int kSize, class T>
bool is_vector_aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (sizeof(T) * kSize) == 0;
}

}  // namespace ringgrad::cuda
