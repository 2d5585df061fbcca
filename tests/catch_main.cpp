// Every test program's main. ctest says of which cases it is that they need a GPU: where there is none, they are
// skipped.
#define CATCH_CONFIG_RUNNER
#include "ringgrad/tests/catch.h"

#include <cstdio>
#include <cstdlib>

#include "ringgrad/core/device.h"

int main(int argc, char** argv) {
  if (std::getenv("RINGGRAD_TESTS_NEED_GPU") && ringgrad::device_count(ringgrad::DeviceType::CUDA) == 0) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
