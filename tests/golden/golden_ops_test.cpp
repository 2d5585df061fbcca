// Operations, optimizers and schedules against the values that PyTorch computed
// (tests/golden/make_ops.py).
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/golden/golden.h"
#include "ringgrad/tests/golden/golden_operations.h"

namespace ringgrad::test::golden_ops_test {

TEST_CASE("operations, optimizers and schedules give PyTorch's values", "[quick]") {
  const Provider provider = GENERATE(Provider::Native, Provider::Reference);
  INFO(name(provider));
  const ProviderGuard guard(provider);
  const nlohmann::json golden = load_golden("ops.json");
  REQUIRE(golden["cases"].size() > 250);
  for (const auto& row : golden["cases"]) {
    INFO(row["op"] << " " << row["args"].dump());
    CHECK(golden_case_difference(row, DType::Float64, 2e-11) == "");  // the file holds 12 digits
  }
}

}  // namespace ringgrad::test::golden_ops_test
