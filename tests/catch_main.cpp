// The main function of every test program. It exits with 77 (skipped, which is not passed) if all
// cases were left out for lack of hardware: a GPU, enough GPUs, or a processor with the needed
// instructions.
#define CATCH_CONFIG_RUNNER
#include "ringgrad/tests/cuda/cuda_util.h"

#include <cstdio>
#include <cstdlib>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device.h"
#include "ringgrad/core/kernels/isa.h"

namespace {

constexpr int kSkipped = 77;

int cases = 0;
int cases_left_out = 0;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

struct CountCases : Listener {
  using Listener::Listener;
  void testCaseStarting(const Catch::TestCaseInfo&) override {
    ringgrad::test::left_something_out = false;
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++cases;
    cases_left_out += ringgrad::test::left_something_out && stats.totals.assertions.total() == 0;
  }
};
CATCH_REGISTER_LISTENER(CountCases)

}  // namespace

// The C++ library counts the holders of an exception in code that ThreadSanitizer does not see. So
// ThreadSanitizer takes the last holder's release for a race with the others' reading, whenever an
// exception goes from one thread to another.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release";
}

int main(int argc, char** argv) {
  const bool need_gpu = std::getenv("RINGGRAD_TESTS_NEED_GPU") != nullptr;
  if (need_gpu && ringgrad::device_count(ringgrad::DeviceType::CUDA) == 0) {
    std::puts("skipped: there is no GPU here");
    return kSkipped;
  }
  for (const ringgrad::BuiltIsa& built : ringgrad::built_isas())
    if (built.name == ringgrad::variable("RINGGRAD_ISA") && !built.on_this_machine) {
      std::printf("skipped: this processor is no x86-64-%s\n", built.name.c_str());
      return kSkipped;
    }
  const int result = Catch::Session().run(argc, argv);
  if (need_gpu && cases == 0) {
    std::puts("failed: no such tests here");
    return 1;
  }
  if (cases_left_out > 0)
    std::printf("left out for want of GPUs: %d of %d cases\n", cases_left_out, cases);
  return need_gpu && result == 0 && cases_left_out > 0 && cases_left_out == cases ? kSkipped
                                                                                  : result;
}
