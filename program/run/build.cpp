#include "ringgrad/program/run/build.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/isa.h"

namespace ringgrad::program {

extern const char* const kBuildCommit;  // build_commit.cmake writes it

namespace {

// "v3, of v2, v3 (RINGGRAD_ISA), not for this machine: v4": the instructions for which the kernels
// in use are compiled, and which there are.
std::string instructions() {
  std::vector<std::string> here;
  std::vector<std::string> beyond;
  for (const BuiltIsa& built : built_isas())
    (built.on_this_machine ? here : beyond).push_back(built.name);
  std::string text = isa();
  if (here.size() > 1) text += fmt::format(", of {} (RINGGRAD_ISA)", fmt::join(here, ", "));
  if (!beyond.empty()) text += fmt::format(", not for this machine: {}", fmt::join(beyond, ", "));
  return text;
}

}  // namespace

std::string build_commit() { return kBuildCommit; }

std::string cuda_build() {
  bool any = false;
  for (const KernelBase* kernel = first_kernel(); kernel; kernel = kernel->next())
    any = any || kernel->has(DeviceType::CUDA, Provider::Native);
  if (!any)
    return "off: this program has no CUDA kernels; emulated on the CPU: ./go --emulated; "
           "for GPUs: cmake --preset cuda";
  if (device_count(DeviceType::CUDA) == 0) return "no GPU: " + why_no_device(DeviceType::CUDA);
  const std::string first = device_backend(DeviceType::CUDA).describe(0);
  return first.starts_with("emulated") ? first + ", for tests; for GPUs: cmake --preset cuda"
                                       : "compiled for GPUs";
}

std::vector<std::pair<std::string, std::string>> build_facts() {
  return {{"version", RINGGRAD_VERSION},
          {"commit", *kBuildCommit ? kBuildCommit : "not known: built outside a checkout"},
          {"compiler", RINGGRAD_BUILT_BY},
          {"kernels", "for " + instructions()},
          {"cuda", cuda_build()}};
}

}  // namespace ringgrad::program
