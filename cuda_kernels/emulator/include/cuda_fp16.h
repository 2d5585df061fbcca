// Stand-in for the CUDA toolkit's header of this name: __half with the bits and rounding of the
// device's. Like CUDA's, it is included by cuda_bf16.h, which has the other type of 16 bits.
#pragma once

#include "ringgrad/core/dtype.h"

namespace ringgrad::emulator {

// 16-bit arithmetic as on the device: computed in float, which is exact enough, and rounded after
// every operation.
template <class Storage>
struct SixteenBit {
  Storage value;

  SixteenBit() = default;
  SixteenBit(float x) : value(x) {}
  operator float() const { return value; }

  friend SixteenBit operator+(SixteenBit a, SixteenBit b) { return float(a) + float(b); }
  friend SixteenBit operator-(SixteenBit a, SixteenBit b) { return float(a) - float(b); }
  friend SixteenBit operator*(SixteenBit a, SixteenBit b) { return float(a) * float(b); }
  friend SixteenBit operator/(SixteenBit a, SixteenBit b) { return float(a) / float(b); }
  friend bool operator<(SixteenBit a, SixteenBit b) { return float(a) < float(b); }
  friend bool operator>(SixteenBit a, SixteenBit b) { return float(a) > float(b); }
  friend bool operator==(SixteenBit a, SixteenBit b) { return float(a) == float(b); }
};

}  // namespace ringgrad::emulator

using __half = ringgrad::emulator::SixteenBit<ringgrad::float16>;
