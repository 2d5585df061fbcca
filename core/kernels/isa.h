// For which instructions the CPU's kernels are compiled: "v2", "v3", "v4" (x86-64-v2 to -v4:
// SSE4.2, AVX2, AVX-512), "v4_bf16" (with products of bfloat16 pairs), "baseline" on other
// processors.
//
// A library may hold the kernels several times, once for each. When a process starts the best that
// its machine has are chosen, or those that RINGGRAD_ISA names. The order in which some sums are
// added follows the width of their vectors: the same bits come out on two machines where isa() is
// the same (and bfloat16_products(), for numbers of bfloat16). Ranks of a job agree on both.
#pragma once

#include <string>
#include <vector>

namespace ringgrad {

// Of the kernels in use. Throws EnvironmentError where RINGGRAD_ISA names what this library or this
// machine lacks.
std::string isa();

struct BuiltIsa {
  std::string name;
  bool on_this_machine;
};
// Those to choose from, from the least to the best.
std::vector<BuiltIsa> built_isas();

// Puts the kernels of another into their tables, while no kernel runs: for ranks that agree on one
// (distributed/agreement/), and for tests. Throws as isa().
void use_isa(const std::string& name);

// Whether products of bfloat16 numbers are computed on the processor's tiles (AMX); and from now on
// they are not.
bool uses_tiles();
void leave_tiles();

}  // namespace ringgrad
