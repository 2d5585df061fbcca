// The contents of a tensor map, which programs see as 128 opaque bytes.
#pragma once

#include <array>
#include <cstdint>

#include "ringgrad/cuda_kernels/emulator/include/cuda.h"

namespace ringgrad::emulator {

struct TensorMapFields {
  static constexpr uint64_t kMagic = 0x70616d726f736e74;  // "tnsormap"
  uint64_t magic;
  char* address;
  std::array<uint64_t, 4> strides;      // in bytes, of all dimensions but the first
  std::array<uint32_t, 5> last_places;  // sizes - 1
  std::array<uint16_t, 5> box;
  std::array<uint8_t, 5> element_strides;
  std::array<int16_t, 3> lower;
  std::array<int16_t, 3> upper;
  uint16_t pixels;
  uint8_t rank;
  uint8_t type;
  uint8_t element_bytes;
  uint8_t span;  // bytes within which the swizzle moves chunks of 16
  uint8_t fill;
  bool im2col;
};
static_assert(sizeof(TensorMapFields) <= sizeof(CUtensorMap));

}  // namespace ringgrad::emulator
