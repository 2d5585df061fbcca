// The properties that the kernels of one instruction set state when they register.
// core/kernels/isa.h chooses among them. Private to core/cpu.
#pragma once

#include "ringgrad/core/device.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

struct IsaKernels {
  const char* name;
  bool multiplies_pairs;                                  // bfloat16 numbers, by an instruction
  double (*peak_operations)(Stream stream, DType dtype);  // see machine_peak.h
  double (*peak_bandwidth)(Stream stream);
};
// Puts these kernels in use. Returns true.
bool register_isa(const IsaKernels& kernels);

}  // namespace ringgrad::cpu
