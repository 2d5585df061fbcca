// The choice among kernels that are compiled for different instructions (core/kernels/isa.h). That
// they compute the same is op_test's, but for those that are no tensor operations: ranks' sums
// (core/kernels/reduction.h).
#include "ringgrad/core/kernels/isa.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::isa_test {

namespace {

using Bytes = std::vector<std::byte>;

// Returns the results of each function for the same elements: numbers of all sizes, infinities and
// zeros. There is no NaN, because it is not specified which of two NaNs is returned.
template <class T>
std::vector<Bytes> results(const ReduceFunctions& r) {
  constexpr size_t kCount = 1237;
  constexpr int kRanks = 3;
  std::mt19937_64 random(1);
  std::vector<std::vector<T>> elements(kRanks, std::vector<T>(kCount));
  for (auto& own : elements)
    for (T& x : own) {
      const uint64_t bits = random();
      std::memcpy(&x, &bits, sizeof x);
      if constexpr (!std::is_integral_v<T>)
        if (static_cast<double>(x) != static_cast<double>(x)) x = static_cast<T>(0);
    }
  std::vector<const void*> inputs;
  for (const auto& own : elements) inputs.push_back(own.data());
  const auto room = [&](size_t item) { return Bytes(kCount * item); };
  Bytes wide = room(r.wide_bytes);
  Bytes more = wide;
  Bytes finished = room(r.item_bytes);
  Bytes all = wide;
  Bytes reduced = finished;
  Bytes pair = finished;
  Bytes same = finished;
  r.combine_items(wide.data(), inputs[0], inputs[1], kCount);
  r.combine_wide(more.data(), inputs[2], wide.data(), kCount);
  r.finish(finished.data(), wide.data(), kCount, kRanks);
  r.combine_all(all.data(), inputs.data(), kRanks, 0, kCount);
  void* const one[] = {reduced.data()};
  r.reduce_all(one, 1, inputs.data(), kRanks, 0, kCount);
  void* const two[] = {pair.data(), same.data()};
  r.reduce_all(two, 2, inputs.data(), 2, 0, kCount);
  return {wide, more, finished, all, reduced, pair, same};
}

}  // namespace

TEST_CASE("the kernels in use are some that the library has, for this machine", "[quick][isa]") {
  const std::vector<BuiltIsa> built = built_isas();
  const auto in_use = std::find_if(built.begin(), built.end(),
                                   [](const BuiltIsa& other) { return other.name == isa(); });
  REQUIRE(in_use != built.end());
  CHECK(in_use->on_this_machine);
  const std::string wanted = variable("RINGGRAD_ISA");
  if (!wanted.empty()) CHECK(isa() == wanted);
  const bool better = std::any_of(in_use + 1, built.end(),
                                  [](const BuiltIsa& other) { return other.on_this_machine; });
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

TEST_CASE("ranks' sums are compiled for each, and have the same bits", "[quick][isa]") {
  const std::string before = isa();
  std::set<const void*> functions;
  std::map<std::string, std::vector<Bytes>> expected;
  size_t usable = 0;
  for (const BuiltIsa& built : built_isas()) {
    if (!built.on_this_machine) continue;
    ++usable;
    use_isa(built.name);
    functions.insert(&reduction("test", DType::Float32, ReduceOp::Sum));
    const auto compare = [&]<class T>(std::initializer_list<ReduceOp> ops) {
      for (const ReduceOp op : ops) {
        const auto found = results<T>(reduction("test", dtype_of<T>, op));
        const auto [first, is_new] = expected.emplace(str(dtype_of<T>, " ", name(op)), found);
        CAPTURE(built.name, first->first);
        if (!is_new) CHECK((found == first->second));
      }
    };
    const auto compare_floats = [&]<class T>() {
      compare.operator()<T>(
          {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product});
    };
    compare_floats.operator()<float>();
    compare_floats.operator()<double>();
    compare_floats.operator()<bfloat16>();
    compare_floats.operator()<float16>();
    compare.operator()<int64_t>(
        {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Max, ReduceOp::BitXor});
    compare.operator()<uint8_t>({ReduceOp::Sum, ReduceOp::Min, ReduceOp::BitAnd});
  }
  use_isa(before);
  CHECK(functions.size() == usable);
}

}  // namespace ringgrad::test::isa_test
