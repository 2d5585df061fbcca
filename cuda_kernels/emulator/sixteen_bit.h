// Arithmetic in 16 bits as the device does it: computed exactly enough in float, rounded after every operation.
#pragma once

#include "ringgrad/core/dtype.h"

namespace ringgrad::emulator {

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
