// Loads and stores of 16 bytes at once: a warp then moves 512 bytes per instruction, which is what it takes to use the
// bandwidth of the memory.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace ringgrad::cuda {

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
__device__ __forceinline__ void store_vector(T* data, int64_t index, const Vector<T, kSize>& vector) {
  reinterpret_cast<Vector<T, kSize>*>(data)[index] = vector;
}

// Whether vectors of kSize elements may be read from here on.
template <int kSize, class T>
bool is_vector_aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (sizeof(T) * kSize) == 0;
}

}  // namespace ringgrad::cuda
