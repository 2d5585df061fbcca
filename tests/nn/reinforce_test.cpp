// A cart that moves as Gym's does, and a policy that learns to balance its pole.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/generator_scope.h"
#include "ringgrad/models/reinforce.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::reinforce_test {
using models::CartPole;
using models::Reinforce;

namespace {

bool same_weights(const Reinforce& a, const Reinforce& b) {
  const auto x = a.policy().state_dict();
  const auto y = b.policy().state_dict();
  for (size_t i = 0; i < x.size(); ++i)
    if (to_vector<float>(x[i].second) != to_vector<float>(y[i].second)) return false;
  return true;
}

}  // namespace

TEST_CASE("reinforce: the cart moves as the equations say", "[reinforce][quick]") {
  CartPole cart({0.01f, -0.02f, 0.03f, 0.04f});
  for (const int push : {1, 1, 0, 1, 0, 0, 1, 1, 1, 1}) REQUIRE(cart.push(push == 1));
  // In float64, by another program.
  const double expected[] = {0.056493, 0.759251, -0.032849, -1.103751};
  for (int i = 0; i < 4; ++i)
    REQUIRE(cart.state()[i] == Approx(expected[i]).epsilon(0).margin(2e-6));

  CartPole pushed({0, 0, 0, 0});
  while (pushed.push(true)) {
  }
  REQUIRE(pushed.steps() == 9);
  REQUIRE(pushed.state()[2] == Approx(-0.215186).epsilon(0).margin(2e-6));
}

TEST_CASE("reinforce: it learns to balance", "[reinforce][quick]") {
  manual_seed(1);
  Reinforce agent({.seed = 1});
  const auto mean_of = [&](int episodes) {
    double sum = 0;
    for (int e = 0; e < episodes; ++e) sum += static_cast<double>(agent.episode()[0]);
    return sum / episodes;
  };
  REQUIRE(mean_of(20) < 60);  // chance: about 20
  double best = 0;
  while (agent.episodes() < 1000 && best < 100) best = std::max(best, mean_of(20));
  REQUIRE(best >= 100);
}

TEST_CASE("reinforce: it goes on where it was saved, bit for bit", "[reinforce][quick]") {
  const test::TempFolder folder;
  const std::string path = folder / "cart.safetensors";
  manual_seed(3);
  Reinforce through({.hidden = 16, .seed = 5});
  for (int e = 0; e < 3; ++e) through.episode();
  through.save(path, {{"note", "kept"}});
  through.episode();

  Reinforce resumed({.hidden = 16, .seed = 5});
  REQUIRE_FALSE(same_weights(through, resumed));
  REQUIRE(resumed.load(path).at("note") == "kept");
  resumed.episode();
  REQUIRE(same_weights(through, resumed));
  REQUIRE(resumed.episodes() == 4);
}

TEST_CASE("reinforce: three environments make the same policy on any number of ranks",
          "[reinforce][quick][threads]") {
  std::vector<double> expected;
  for (const int n : {3, 2, 1})
    test::run_ddp_ranks(n, [&](ProcessGroup& group) {
      Generator random(9);  // a process would have its own
      const GeneratorScope scope(random);
      Reinforce agent({.hidden = 16, .seed = 5, .shards = 3}, &group);
      std::vector<double> bits;
      for (int e = 0; e < 3; ++e)
        for (const int64_t length : agent.episode()) bits.push_back(static_cast<double>(length));
      test::must(bits.size() == 9 && agent.episodes() == 9, "nine episodes");
      bits.push_back(static_cast<double>(agent.pushes()));
      const auto weights = test::flat_values(agent.policy());
      bits.insert(bits.end(), weights.begin(), weights.end());
      agent.check_identical();
      if (n == 3 && group.is_main_process()) expected = bits;
      if (n < 3) test::must(bits == expected, str("the bits of three ranks on ", n));
    });
  REQUIRE_THROWS_WITH(Reinforce({.shards = 2}), ContainsSubstring("2 shards need a group"));
}

}  // namespace ringgrad::test::reinforce_test
