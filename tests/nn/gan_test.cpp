// Two networks against each other: on several ranks as on one, after a pause as without, and that
// they learn.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/generator_scope.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/gan.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::gan_test {
using models::Gan;

namespace {

constexpr models::GanOptions kSmall{
    .channels = 1, .image_size = 8, .latent = 6, .width = 8, .lr = 2e-3};

// Rings of two sizes, with some noise: a function of the step.
Tensor images(int64_t step, int64_t count) {
  Tensor x = empty({count, 1, 8, 8});
  RandomSequence random(1, Purpose::Shapes, step);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double dy = static_cast<double>(i / 8 % 8) - 3.5;
    const double dx = static_cast<double>(i % 8) - 3.5;
    const double away = std::abs(std::sqrt(dy * dy + dx * dx) - 2.5);
    const double grain = static_cast<double>(random.below(100)) / 1000;
    x.data<float>()[i] =
        static_cast<float>((away < 0.8 ? 0.9 : -0.9) + (away < 0.8 ? -grain : grain));
  }
  return x;
}

double mean_difference(const nn::NamedTensors& a, const nn::NamedTensors& b) {
  double sum = 0;
  double count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = to_vector<double>(to(a[i].second, DType::Float64));
    const auto y = to_vector<double>(to(b[i].second, DType::Float64));
    for (size_t j = 0; j < x.size(); ++j) sum += std::abs(x[j] - y[j]);
    count += static_cast<double>(x.size());
  }
  return sum / count;
}

}  // namespace

TEST_CASE("gan: what it draws becomes what it sees", "[gan][quick]") {
  manual_seed(3);
  Gan gan(kSmall);
  const auto likeness = [&] {  // the correlation of the drawings with the ring
    const auto drawn = to_vector<double>(to(gan.draw(16), DType::Float64));
    const auto seen = to_vector<double>(to(images(0, 16), DType::Float64));
    const auto mean = [](const std::vector<double>& x) {
      return std::accumulate(x.begin(), x.end(), 0.0) / x.size();
    };
    const double drawn_mean = mean(drawn);
    const double seen_mean = mean(seen);
    double dd = 0;
    double ss = 0;
    double ds = 0;
    for (size_t i = 0; i < drawn.size(); ++i) {
      const double d = drawn[i] - drawn_mean;
      const double s = seen[i] - seen_mean;
      dd += d * d;
      ss += s * s;
      ds += d * s;
    }
    return ds / std::sqrt(dd * ss + 1e-12);
  };
  REQUIRE(std::abs(likeness()) < 0.3);
  double best = 0;
  for (int64_t step = 0; step < 200 && best < 0.7; ++step) {
    gan.step(images(step, 16), 16);
    best = std::max(best, likeness());
  }
  REQUIRE(best >= 0.7);
}

TEST_CASE("gan: one rank of a group does what a process does by itself", "[gan][quick][threads]") {
  constexpr int kSteps = 3;
  manual_seed(5);
  Gan one(kSmall);
  for (int64_t step = 0; step < kSteps; ++step) one.step(images(step, 16), 16);
  manual_seed(5);
  auto groups = host_groups(1, "shm");
  Gan alone(kSmall, groups[0].get());
  for (int64_t step = 0; step < kSteps; ++step) alone.step(images(step, 16), 16);
  REQUIRE(mean_difference(one.networks().state_dict(), alone.networks().state_dict()) <
          0.02 * kSmall.lr);
}

TEST_CASE("gan: it goes on where it was saved, bit for bit", "[gan][quick]") {
  const test::TempFolder folder;
  const std::string path = folder / "gan.safetensors";
  manual_seed(7);
  Gan through(kSmall);
  for (int64_t step = 0; step < 2; ++step) through.step(images(step, 8), 8);
  through.save(path, {{"step", "2"}});
  through.step(images(2, 8), 8);

  manual_seed(8);
  Gan resumed(kSmall);
  resumed.step(images(9, 8), 8);  // whatever it was before
  REQUIRE(resumed.load(path) == std::map<std::string, std::string>{{"step", "2"}});
  resumed.step(images(2, 8), 8);
  REQUIRE(mean_difference(through.networks().state_dict(), resumed.networks().state_dict()) == 0);
}

TEST_CASE("gan: three shards have the same bits on any number of ranks", "[gan][quick][threads]") {
  std::vector<double> expected;
  for (const int n : {3, 2, 1})
    test::run_ddp_ranks(n, [&](ProcessGroup& group) {
      Generator random(9);  // a process would have its own
      const GeneratorScope scope(random);
      models::GanOptions options = kSmall;
      options.shards = 3;
      Gan gan(options, &group);
      std::vector<double> bits;
      for (int64_t step = 0; step < 3; ++step) {
        const RowRange own = gan.own_rows(13);
        const auto [discriminator, generator] =
            gan.step(images(step, 13).narrow(0, own.begin, own.size()), 13);
        bits.insert(bits.end(), {discriminator, generator});
      }
      const auto weights = test::flat_values(gan.networks());
      bits.insert(bits.end(), weights.begin(), weights.end());
      if (n == 3 && group.is_main_process()) expected = bits;
      if (n < 3) test::must(bits == expected, str("the bits of three ranks on ", n));
    });
}

TEST_CASE("gan: what cannot be is an error", "[gan][quick]") {
  REQUIRE_THROWS_WITH(Gan({.image_size = 10}), ContainsSubstring("images of 10 pixels"));
  REQUIRE_THROWS_WITH(Gan({.image_size = 8, .shards = 2}),
                      ContainsSubstring("2 shards need a group"));
  manual_seed(1);
  Gan gan(kSmall);
  REQUIRE_THROWS_WITH(gan.step(images(0, 7), 8),
                      ContainsSubstring("this rank's 8 of a batch of 8"));
}

}  // namespace ringgrad::test::gan_test
