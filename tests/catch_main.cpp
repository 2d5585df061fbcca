// Every test program's main. ctest says of which cases it is that they need a GPU, or a processor for whose
// instructions there are kernels: where there is none, they are skipped.
#define CATCH_CONFIG_RUNNER
#include "ringgrad/tests/catch.h"

#include <cstdio>
#include <cstdlib>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device.h"
#include "ringgrad/core/kernels/isa.h"

int main(int argc, char** argv) {
  if (std::getenv("RINGGRAD_TESTS_NEED_GPU") && ringgrad::device_count(ringgrad::DeviceType::CUDA) == 0) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  for (const ringgrad::BuiltIsa& built : ringgrad::built_isas())
    if (built.name == ringgrad::variable("RINGGRAD_ISA") && !built.on_this_machine) {
      std::printf("skipped: this processor is no x86-64-%s\n", built.name.c_str());
      return 77;
    }
  return Catch::Session().run(argc, argv);
}
