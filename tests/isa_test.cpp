// The choice among kernels that are compiled for different instructions (core/kernels/isa.h). That they compute the
// same is op_test's.
#include "ringgrad/core/kernels/isa.h"

#include <algorithm>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/tests/catch.h"

using namespace ringgrad;

TEST_CASE("the kernels in use are some that the library has, for this machine", "[quick][isa]") {
  const std::vector<BuiltIsa> built = built_isas();
  const auto in_use =
      std::find_if(built.begin(), built.end(), [](const BuiltIsa& other) { return other.name == isa(); });
  REQUIRE(in_use != built.end());
  CHECK(in_use->on_this_machine);
  const std::string wanted = variable("RINGGRAD_ISA");
  if (!wanted.empty()) CHECK(isa() == wanted);
  const bool better = std::any_of(in_use + 1, built.end(), [](const BuiltIsa& other) { return other.on_this_machine; });
  if (wanted.empty()) CHECK(!better);
}

TEST_CASE("kernels for other instructions are refused, and those in use stay", "[quick][isa]") {
  const std::string before = isa();
  REQUIRE_THROWS_AS(use_isa("v9"), EnvironmentError);
  CHECK(isa() == before);
  try {
    use_isa("v9");
  } catch (const EnvironmentError& error) {
    CHECK(std::string(error.what()).find("RINGGRAD_ISA is 'v9'") != std::string::npos);
    CHECK(std::string(error.what()).find(before) != std::string::npos);
  }
  use_isa(before);
  CHECK(isa() == before);
}
