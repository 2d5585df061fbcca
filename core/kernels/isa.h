// The instruction sets for which the CPU's kernels are compiled: "v2", "v3", "v4" (x86-64-v2 to
// -v4: SSE4.2, AVX2, AVX-512), "v4_bf16" (with products of bfloat16 pairs), and "baseline" on other
// processors.
//
// A library may contain the kernels several times, once for each instruction set. When a process
// starts, it chooses the best set that its machine supports, or the one that RINGGRAD_ISA names.
// The order in which some sums are added follows the width of the vectors. So two machines give the
// same bits if isa() is the same; for bfloat16 numbers bfloat16_products() must agree, too. The
// ranks of a job agree on both.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// Returns the instruction set of the kernels in use. Throws EnvironmentError if RINGGRAD_ISA names
// one that this library or this machine lacks.
std::string isa();

struct BuiltIsa {
  std::string name;
  bool on_this_machine;
};
// Returns the sets that this library contains, from the least to the best.
std::vector<BuiltIsa> built_isas();

// Switches to the kernels of another instruction set. REQUIRES: no kernel runs. Ranks that agree on
// a set call it (distributed/agreement/), and so do tests. Throws as isa().
void use_isa(const std::string& name);

// uses_tiles() returns true if products of bfloat16 numbers are computed on the processor's tiles
// (AMX). After leave_tiles() they are not.
bool uses_tiles();
void leave_tiles();

}  // namespace ringgrad
