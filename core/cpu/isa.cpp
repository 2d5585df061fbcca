// Chooses the instruction set of the kernels in use.
//
// If a library has the kernels once, they register before main like any kernel. If it has them
// several times (RINGGRAD_ISAS), none of their code may run until it is known that the machine
// supports its instructions. So one_isa.cmake puts the initialisers of each, which register its
// kernels, into a separate section. This file calls them.
#include "ringgrad/core/cpu/isa.h"

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/machine_peak.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/core/kernels/kernel.h"

using Initialiser = void (*)();
// The linker defines these two names for a section that exists. Otherwise they are null.
#define INITIALISERS(isa)                                                                          \
  extern "C"                                                                                       \
      [[gnu::weak, gnu::visibility("hidden")]] const Initialiser __start_ringgrad_kernels_##isa[]; \
  extern "C"                                                                                       \
      [[gnu::weak, gnu::visibility("hidden")]] const Initialiser __stop_ringgrad_kernels_##isa[]
INITIALISERS(v2);
INITIALISERS(v3);
INITIALISERS(v4);
INITIALISERS(v4_bf16);

namespace ringgrad {
namespace {

constinit cpu::IsaKernels in_use{};

struct Choice {
  BuiltIsa isa;
  const Initialiser* begin;
  const Initialiser* end;
};

// Returns the instruction sets if there are several, from the least to the best.
std::vector<Choice> choices() {
  std::vector<Choice> all;
  // Only g++ builds several (CMakeLists.txt), and clang 16 does not know the names of these levels.
#if defined(__x86_64__) && !defined(__clang__)
  __builtin_cpu_init();
  const auto add = [&](const char* name, bool on_this_machine, const Initialiser* begin,
                       const Initialiser* end) {
    if (begin != end) all.push_back({{name, on_this_machine}, begin, end});
  };
#define ADD(isa, has) add(#isa, has, __start_ringgrad_kernels_##isa, __stop_ringgrad_kernels_##isa)
  const bool v4 = __builtin_cpu_supports("x86-64-v4");
  ADD(v2, __builtin_cpu_supports("x86-64-v2"));
  ADD(v3, __builtin_cpu_supports("x86-64-v3"));
  ADD(v4, v4);
  ADD(v4_bf16, v4 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"));
#endif
  return all;
}

void choose(const std::string& wanted) {
  const std::vector<Choice> all = choices();
  if (all.empty()) {  // there is only one, and it is in use
    CHECK_AS(EnvironmentError, wanted.empty() || wanted == in_use.name, "RINGGRAD_ISA is '", wanted,
             "', but this library's kernels are compiled for ", in_use.name,
             " alone; cmake -DRINGGRAD_ISAS=\"v2;v3;v4;v4_bf16\" builds all");
    return;
  }
  std::string names;
  const Choice* chosen = nullptr;
  for (const Choice& choice : all) {
    if (!choice.isa.on_this_machine) continue;
    names += (names.empty() ? "" : ", ") + choice.isa.name;
    if (wanted.empty() || wanted == choice.isa.name) chosen = &choice;
  }
  CHECK_AS(EnvironmentError, !names.empty(), "this library's kernels need x86-64-", all[0].isa.name,
           ", which this processor is not");
  CHECK_AS(EnvironmentError, chosen, "RINGGRAD_ISA is '", wanted,
           "', expected one of those that this library and ", "this machine have: ", names);
  std::for_each(chosen->begin, chosen->end, [](Initialiser initialise) { initialise(); });
}

// If there are several, chooses one before main, when kernels register. An error is reported later,
// when a kernel is needed.
constinit bool chosen_at_start = false;
void choose_at_start() {
  try {
    if (choices().empty()) return;
    choose(variable("RINGGRAD_ISA"));
    chosen_at_start = true;
  } catch (const EnvironmentError&) {
  }
}
BEFORE_MAIN(isa, choose_at_start());
BEFORE_MAIN(
    check, cpu_check = [] { (void)isa(); });

}  // namespace

std::string isa() {
  if (!chosen_at_start) choose(variable("RINGGRAD_ISA"));
  return in_use.name;
}

std::vector<BuiltIsa> built_isas() {
  std::vector<BuiltIsa> built;
  for (const Choice& choice : choices()) built.push_back(choice.isa);
  if (built.empty()) built.push_back({in_use.name, true});
  return built;
}

void use_isa(const std::string& name) { choose(name); }

bool uses_tiles() { return amx::tiles() != amx::Tiles::None; }
void leave_tiles() { amx::use_tiles(amx::Tiles::None); }

std::string bfloat16_products() {
  if (uses_tiles()) return "on tiles (AMX)";
  return (in_use.multiplies_pairs ? "in pairs by AVX512_BF16" : "as float32") +
         (" (no tiles: " + amx::why_no_tiles() + ")");
}

namespace cpu {

bool register_isa(const IsaKernels& kernels) {
  in_use = kernels;
  return true;
}

double peak_operations(Stream stream, DType dtype) { return in_use.peak_operations(stream, dtype); }
double peak_bandwidth(Stream stream) { return in_use.peak_bandwidth(stream); }

}  // namespace cpu
}  // namespace ringgrad
