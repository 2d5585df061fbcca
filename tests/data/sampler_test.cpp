// Samplers: shards are disjoint and complete, orders differ by epoch and agree between ranks,
// resuming is exact.
#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "ringgrad/core/error.h"
#include "ringgrad/data/batch_part_sampler.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/data/shard_digest.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::sampler_test {

namespace {

using Indices = std::vector<int64_t>;

std::vector<DistributedSampler> ranks(int64_t n, int64_t world, DistributedSamplerOptions options) {
  std::vector<DistributedSampler> all;
  for (int64_t rank = 0; rank < world; ++rank) all.emplace_back(n, world, rank, options);
  return all;
}

Indices iota(int64_t n) {
  Indices all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The order of the epoch as the ranks together use it: place k is rank k % world's, at k / world.
Indices interleave(const std::vector<DistributedSampler>& all, const SamplerState& at) {
  std::vector<Indices> shards;
  for (const auto& sampler : all) shards.push_back(sampler.indices(at));
  Indices order;
  for (size_t i = 0; i < shards[0].size(); ++i)
    for (const Indices& shard : shards)
      if (i < shard.size()) order.push_back(shard[i]);
  return order;
}

Indices sorted(Indices x) {
  std::sort(x.begin(), x.end());
  return x;
}

}  // namespace

TEST_CASE("sampler: numbers of samples and ranks whose sum is beyond 64 bits", "[quick]") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK(DistributedSampler(kMost, 1, 0).size() == kMost);
  CHECK(DistributedSampler(10, kMost, 10).size() == 1);
  CHECK(DistributedSampler(10, kMost, 9, {.pad = false}).size() == 1);
  CHECK(DistributedSampler(10, kMost, 10, {.pad = false}).size() == 0);
  CHECK(DistributedSampler(10, kMost, 9, {.drop_last = true}).size() == 0);
}

TEST_CASE("sampler: shards partition the data set, for all sizes and worlds", "[quick]") {
  const bool shuffle = GENERATE(false, true);
  for (int64_t n = 0; n <= 33; ++n) {
    for (int64_t world = 1; world <= 9; ++world) {
      INFO("n " << n << " world " << world << " shuffle " << shuffle);
      const SamplerState at{7, 3, 0};

      // Unpadded: exactly once each, sizes differ by at most one.
      const auto exact = ranks(n, world, {.shuffle = shuffle, .pad = false});
      const Indices order = interleave(exact, at);
      REQUIRE(sorted(order) == iota(n));
      if (!shuffle) REQUIRE(order == iota(n));
      for (const auto& sampler : exact) {
        REQUIRE(exact[0].size() - sampler.size() <= 1);
        REQUIRE(sampler.padding(at) == 0);
      }

      // Padded: the same order, then its beginning again, until all ranks have equally many.
      const auto padded = ranks(n, world, {.shuffle = shuffle});
      Indices expected = order;
      for (int64_t k = 0; n > 0 && static_cast<int64_t>(expected.size()) % world != 0; ++k)
        expected.push_back(order[k % n]);
      REQUIRE(interleave(padded, at) == expected);
      int64_t padding = 0;
      for (const auto& sampler : padded) {
        REQUIRE(sampler.size() == (n + world - 1) / world);
        padding += sampler.padding(at);
      }
      REQUIRE(padding == static_cast<int64_t>(expected.size()) - n);

      // Dropped: the same order, less its end.
      const auto dropped = ranks(n, world, {.shuffle = shuffle, .drop_last = true});
      REQUIRE(interleave(dropped, at) == Indices(order.begin(), order.end() - n % world));
      for (const auto& sampler : dropped) REQUIRE(sampler.size() == n / world);
    }
  }
}

TEST_CASE("sampler: without shuffling it is PyTorch's DistributedSampler, index by index",
          "[quick]") {
  // torch.utils.data.DistributedSampler(range(11), num_replicas=4, rank=r, shuffle=False)
  const std::vector<Indices> expected{{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 0}};
  // the same with drop_last=True, and of range(2) with 5 replicas
  const std::vector<Indices> dropped{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const std::vector<Indices> tiny{{0}, {1}, {0}, {1}, {0}};
  for (int64_t r = 0; r < 4; ++r) {
    REQUIRE(DistributedSampler(11, 4, r, {.shuffle = false}).indices({}) == expected[r]);
    REQUIRE(DistributedSampler(11, 4, r, {.shuffle = false, .drop_last = true}).indices({}) ==
            dropped[r]);
  }
  for (int64_t r = 0; r < 5; ++r)
    REQUIRE(DistributedSampler(2, 5, r, {.shuffle = false}).indices({}) == tiny[r]);
}

TEST_CASE("sampler: orders are permutations that differ by epoch and seed, the same everywhere",
          "[quick]") {
  std::set<Indices> different;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      const Indices order = epoch_order(50, true, seed, epoch);
      REQUIRE(sorted(order) == iota(50));
      different.insert(order);
    }
  REQUIRE(different.size() == 400);
  // By an independent program of Philox4x32-10 and Lemire's method; every machine must agree.
  REQUIRE(epoch_order(10, true, 0, 0) == Indices{1, 5, 0, 3, 6, 9, 8, 2, 7, 4});
  REQUIRE(epoch_order(10, true, 1, 2) == Indices{9, 0, 3, 4, 6, 7, 8, 2, 5, 1});
}

TEST_CASE("sampler: every sample comes to every place equally often", "[quick]") {
  constexpr int64_t kSize = 8;
  constexpr int kEpochs = 8000;
  int count[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Indices order = epoch_order(kSize, true, 5, epoch);
    for (int64_t place = 0; place < kSize; ++place) ++count[place][order[place]];
  }
  // Chi-squared over 64 cells has 49 degrees of freedom; above 100 it is chance once in 20,000
  // seeds.
  double chi2 = 0;
  const double expected = static_cast<double>(kEpochs) / kSize;
  for (const auto& row : count)
    for (int cell : row) chi2 += (cell - expected) * (cell - expected) / expected;
  REQUIRE(chi2 < 100);
  REQUIRE(chi2 > 15);  // nor may it be more even than chance
}

TEST_CASE("sampler: each pass is another epoch unless told otherwise", "[quick]") {
  RandomSampler sampler(10, 3);
  REQUIRE(sampler.start_pass() == SamplerState{3, 0, 0});
  REQUIRE(sampler.start_pass() == SamplerState{3, 1, 0});
  sampler.set_epoch(5);
  REQUIRE(sampler.start_pass() == SamplerState{3, 5, 0});
  REQUIRE(sampler.start_pass() == SamplerState{3, 6, 0});
  sampler.set_epoch(0);
  REQUIRE(sampler.start_pass() == SamplerState{3, 0, 0});

  // Going on in the middle of an epoch; the set_epoch at the head of a training loop does not
  // restart it.
  sampler.load_state({9, 4, 6});
  sampler.set_epoch(4);
  REQUIRE(sampler.start_pass() == SamplerState{9, 4, 6});
  REQUIRE(sampler.start_pass() == SamplerState{9, 5, 0});
  sampler.load_state({9, 4, 6});
  sampler.set_epoch(7);
  REQUIRE(sampler.start_pass() == SamplerState{9, 7, 0});
}

TEST_CASE("sampler: resuming from any place continues the order, on any number of ranks",
          "[quick]") {
  const int64_t n = 23;
  for (int64_t world : {1, 2, 3, 5}) {
    const Indices whole = interleave(ranks(n, world, {}), {11, 2, 0});
    for (int64_t position = 0; position <= n; ++position) {
      // The same world at a step boundary gets exactly the rest, with its padding.
      if (position % world == 0)
        REQUIRE(interleave(ranks(n, world, {}), {11, 2, position}) ==
                Indices(whole.begin() + position, whole.end()));
      // Another world gets each sample of the rest once.
      for (int64_t other : {1, 2, 4, 7}) {
        const Indices rest = interleave(ranks(n, other, {.pad = false}), {11, 2, position});
        REQUIRE(rest == Indices(whole.begin() + position, whole.begin() + n));
      }
    }
  }
}

TEST_CASE("sampler: the digest of the shards adds up to that of the whole, and only then",
          "[quick]") {
  const int64_t n = 101;
  const int64_t world = 4;
  const SamplerState at{1, 6, 0};
  auto total = [&](DistributedSamplerOptions options) {
    ShardDigest sum;
    for (const auto& sampler : ranks(n, world, options)) {
      Indices indices = sampler.indices(at);
      indices.resize(indices.size() - static_cast<size_t>(sampler.padding(at)));
      ShardDigest mine;
      mine.add(indices);
      sum += mine;
    }
    return sum;
  };
  REQUIRE(total({}) == complete_digest(n));
  REQUIRE(total({.pad = false}) == complete_digest(n));
  REQUIRE(total({.shuffle = false}) == complete_digest(n));
  REQUIRE_FALSE(total({.drop_last = true}) == complete_digest(n));

  // Two ranks that shuffle differently: some samples come twice, others never.
  ShardDigest wrong;
  for (uint64_t rank = 0; rank < 2; ++rank)
    wrong.add(DistributedSampler(100, 2, static_cast<int64_t>(rank)).indices({rank, 0, 0}));
  REQUIRE_FALSE(wrong == complete_digest(100));
  // A repeated sample does not cancel, and neither does an exchanged one.
  for (int64_t i = 1; i < 100; ++i) {
    ShardDigest swapped;
    for (int64_t k = 0; k < 100; ++k) swapped.add(k == i ? i - 1 : k);
    REQUIRE_FALSE(swapped == complete_digest(100));
  }
}

TEST_CASE("sampler: arguments out of range are errors", "[quick]") {
  REQUIRE_THROWS_AS(DistributedSampler(-1, 1, 0), Error);
  REQUIRE_THROWS_AS(DistributedSampler(10, 0, 0), Error);
  REQUIRE_THROWS_AS(DistributedSampler(10, 2, 2), Error);
  REQUIRE_THROWS_AS(DistributedSampler(10, 2, -1), Error);
  DistributedSampler sampler(10, 2, 1);
  REQUIRE_THROWS_AS(sampler.indices({0, 0, 11}), IndexError);
  REQUIRE_THROWS_AS(sampler.load_state({0, -1, 0}), IndexError);
  REQUIRE(sampler.indices({0, 0, 10}).empty());
}

TEST_CASE("sampler: parts of global batches, also of the smaller last one, and from the middle on",
          "[quick]") {
  // The three parts of a batch of 10 have 4, 3 and 3 rows. In the last batch, of 2, the first two
  // parts have one row each.
  const auto part = [](int64_t k) {
    return [k](int64_t batch) {
      const auto edge = [&](int64_t i) { return i * (batch / 3) + std::min(i, batch % 3); };
      return BatchPartSampler::Part{edge(k), edge(k + 1)};
    };
  };
  const Indices order = epoch_order(32, true, 5, 1);
  for (const int64_t position : {0, 10, 30}) {
    Indices together;
    std::vector<BatchPartSampler> all;
    for (int64_t k = 0; k < 3; ++k) all.emplace_back(32, 10, part(k), 5);
    for (int64_t at = position; at < 32; at += 10)
      for (int64_t k = 0; k < 3; ++k) {
        const Indices from_here = all[k].indices({5, 1, at});
        const auto [begin, end] = part(k)(std::min<int64_t>(10, 32 - at));
        together.insert(together.end(), from_here.begin(), from_here.begin() + end - begin);
      }
    CHECK(together == Indices(order.begin() + position, order.end()));
  }
  const BatchPartSampler first(32, 10, part(0), 5);
  const BatchPartSampler last(32, 10, part(2), 5);
  CHECK(first.size() == 4 * 3 + 1);
  CHECK(last.size() == 3 * 3);
  CHECK(first.used_by_all(8) == 20);
  CHECK(last.used_by_all(6) == 20);
  CHECK_THROWS_AS(first.indices({5, 1, 33}), IndexError);
  CHECK_THROWS_AS(BatchPartSampler(32, 0, part(0), 5), Error);
  CHECK_THROWS_AS(BatchPartSampler(32, 2, part(2), 5), Error);
}

}  // namespace ringgrad::test::sampler_test
