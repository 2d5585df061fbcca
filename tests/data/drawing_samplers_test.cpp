// Samplers that draw: the frequencies of their samples, and the length of an epoch.
#include "ringgrad/data/drawing_samplers.h"

#include <cmath>
#include <set>

#include "ringgrad/core/error.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/dataset.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::drawing_samplers_test {

namespace {

// Counts that are binomial lie within six of their standard deviations.
void check_counts(const std::vector<int64_t>& draws, const std::vector<double>& probabilities) {
  std::vector<double> counts(probabilities.size());
  for (const int64_t draw : draws) {
    REQUIRE(draw >= 0);
    REQUIRE(draw < static_cast<int64_t>(counts.size()));
    ++counts[static_cast<size_t>(draw)];
  }
  const auto n = static_cast<double>(draws.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    const double p = probabilities[i];
    INFO("place " << i << ": " << counts[i] << " of " << n << " with probability " << p);
    CHECK(std::abs(counts[i] - n * p) <= 6 * std::sqrt(n * p * (1 - p)));
  }
}

}  // namespace

TEST_CASE("drawing samplers give each sample as often as its weight says", "[quick]") {
  const ReplacementSampler even(4, 20000);
  CHECK(even.size() == 20000);
  check_counts(even.indices(even.state()), {0.25, 0.25, 0.25, 0.25});
  const WeightedRandomSampler weighted({3, 0, 1, 1e-30, 4}, 20000);
  check_counts(weighted.indices(weighted.state()), {3 / 8.0, 0, 1 / 8.0, 0, 4 / 8.0});
  const WeightedRandomSampler huge({1e308, 1e308}, 1000);
  check_counts(huge.indices(huge.state()), {0.5, 0.5});
}

TEST_CASE("without replacement no sample comes twice, and heavy ones come first", "[quick]") {
  std::vector<int64_t> firsts;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const WeightedRandomSampler sampler({1, 0, 2, 5}, 3, false, seed);
    const auto draws = sampler.indices(sampler.state());
    REQUIRE(std::set(draws.begin(), draws.end()) == std::set<int64_t>{0, 2, 3});
    firsts.push_back(draws[0]);
  }
  check_counts(firsts, {1 / 8.0, 0, 2 / 8.0, 5 / 8.0});
}

TEST_CASE("without replacement the lightest sample comes before one without weight", "[quick]") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const WeightedRandomSampler sampler({0, 1, 0, 5e-324, 0}, 2, false, seed);
    CHECK(sampler.indices(sampler.state()) == std::vector<int64_t>{1, 3});
  }
}

TEST_CASE("an epoch of draws is a function of its seed and number", "[quick]") {
  const ReplacementSampler sampler(1000, 50, 7);
  const auto first = sampler.indices({7, 0, 0});
  CHECK(first == ReplacementSampler(1000, 50, 7).indices({7, 0, 0}));
  CHECK(first != sampler.indices({7, 1, 0}));
  CHECK(first != sampler.indices({8, 0, 0}));
  CHECK(sampler.indices({7, 0, 48}) == std::vector<int64_t>(first.begin() + 48, first.end()));
  CHECK_THROWS_AS(sampler.indices({7, 0, 51}), IndexError);
  CHECK(ReplacementSampler(9).size() == 9);
}

TEST_CASE("a loader takes its samples from a drawing sampler", "[quick]") {
  const auto data = std::make_shared<TensorDataset>(arange(5));
  DataLoader loader(data,
                    std::make_shared<WeightedRandomSampler>(std::vector<double>{0, 0, 1, 0, 0}, 6),
                    {.batch_size = 4});
  int64_t count = 0;
  for (const Batch& batch : loader) {
    for (const int64_t value : to_vector<int64_t>(batch.data)) CHECK(value == 2);
    count += batch.size();
  }
  CHECK(count == 6);
}

TEST_CASE("drawing samplers refuse what cannot be drawn", "[quick]") {
  require_error<Error>("0 draws from 0 samples", [] { ReplacementSampler(0); });
  require_error<Error>("weight 1 is -1", [] { WeightedRandomSampler({1, -1}, 2); });
  require_error<Error>("weight 0 is nan", [] { WeightedRandomSampler({NAN}, 2); });
  require_error<Error>("2 draws, and 1 weights above 0", [] {
    WeightedRandomSampler({1, 0}, 2, false);
  });
  require_error<Error>("1 draws, and 0 weights above 0", [] { WeightedRandomSampler({0}, 1); });
}

}  // namespace ringgrad::test::drawing_samplers_test
