// The order in which shards are added must not depend on the ranks that have them.
#include "ringgrad/distributed/shards/shard_tree.h"

#include <bit>
#include <string>

#include "ringgrad/distributed/shards/lockstep.h"
#include "ringgrad/distributed/shards/tree_all_reduce.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::shard_tree_test {

namespace {

std::string words(const std::string& left, const std::string& right) {
  return "(" + left + "+" + right + ")";
}

// The tree by its definition: a node is its two halves, the left one a power of two.
std::string tree(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  const int half = static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  return words(tree(begin, begin + half), tree(begin + half, end));
}

// Shard s's summand: numbers of very different sizes, of which every order of addition makes
// another sum.
Tensor summand(int shard, int64_t numel) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) {
    const uint32_t word = philox(9, static_cast<uint64_t>(i * 64 + shard)).word[0];
    values.push_back((uniform_from(word) - 0.5f) * static_cast<float>(1 << (word % 12)));
  }
  return tensor(values);
}

Tensor tree_sum(int begin, int end, int64_t numel) {
  if (end - begin == 1) return summand(begin, numel);
  const int half = static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  return sum_of(tree_sum(begin, begin + half, numel), tree_sum(begin + half, end, numel));
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return to_vector<float>(a) == to_vector<float>(b);
}

}  // namespace

TEST_CASE("partial sums join to the same tree however ranks divide the shards",
          "[shard_tree][quick]") {
  for (int shards = 1; shards <= 33; ++shards)
    for (int ranks = 1; ranks <= shards; ++ranks) {
      std::vector<PartialSum<std::string>> at_owner;
      int next = 0;
      for (int r = 0; r < ranks; ++r) {
        const ShardRange own = shards_of_rank(r, ranks, shards);
        REQUIRE(own.begin == next);
        REQUIRE(own.size() >= 1);
        next = own.end;
        std::vector<PartialSum<std::string>> at_rank;
        for (int s = own.begin; s < own.end; ++s)
          join(at_rank, {{s, s + 1}, std::to_string(s)}, shards, words);
        const auto ranges = partial_sums_of(own, shards);
        REQUIRE(ranges.size() == at_rank.size());
        REQUIRE(ranges.size() <=
                2 * static_cast<size_t>(std::bit_width(static_cast<unsigned>(shards))));
        for (size_t i = 0; i < ranges.size(); ++i) {
          REQUIRE(ranges[i] == at_rank[i].shards);
          join(at_owner, at_rank[i], shards, words);
        }
      }
      REQUIRE(next == shards);
      REQUIRE(at_owner.size() == 1);
      REQUIRE(at_owner[0].value == tree(0, shards));
    }
}

TEST_CASE("a rank of a power of two that divides the shards has one partial sum",
          "[shard_tree][quick]") {
  for (const int ranks : {1, 2, 4, 8, 16})
    for (int r = 0; r < ranks; ++r)
      CHECK(partial_sums_of(shards_of_rank(r, ranks, 16), 16).size() == 1);
}

TEST_CASE("rows of a batch go to shards that differ by at most one", "[shard_tree][quick]") {
  for (const int64_t batch : {0, 1, 4, 5, 7, 120, 128})
    for (const int shards : {1, 3, 5, 8}) {
      int64_t next = 0;
      for (int s = 0; s < shards; ++s) {
        const RowRange rows = rows_of({s, s + 1}, shards, batch);
        CHECK(rows.begin == next);
        CHECK((rows.size() == batch / shards || rows.size() == batch / shards + 1));
        CHECK(rows.size() <= rows_of({s, s + 1}, shards, batch + 1)
                                 .size());  // no shard gets more rows from a smaller batch
        next = rows.end;
      }
      CHECK(next == batch);
    }
}

TEST_CASE("all ranks get the tree's sum, bit for bit, on any number of ranks",
          "[shard_tree][quick][threads]") {
  const int shards = GENERATE(5, 8);
  const char* channel = GENERATE(from_range(channel_names()));
  const int64_t numel = GENERATE(1, 100, 10'007);
  const Tensor expected = tree_sum(0, shards, numel);
  for (int ranks = 1; ranks <= shards; ++ranks)
    run_ddp_ranks(
        ranks,
        [&](ProcessGroup& group) {
          const TreeAllReduce tree(group, shards);
          std::vector<PartialSum<Tensor>> sums;
          for (int s = tree.own_shards().begin; s < tree.own_shards().end; ++s)
            join(sums, {{s, s + 1}, summand(s, numel)}, shards, sum_of);
          std::vector<Tensor> own;
          std::vector<Tensor> copies;
          for (const auto& sum : sums) own.push_back(copy_of(sum.value, {}));
          for (const auto& sum : sums) copies.push_back(copy_of(sum.value, {}));
          TreeAllReduce::Sum first = tree.start(own, {});
          TreeAllReduce::Sum second = tree.start(copies, {});
          tree.fold(first);
          tree.fold(second);
          tree.finish(first);
          tree.finish(second);
          must(same_bits(first.own.back(), expected) && same_bits(second.own.back(), expected),
               "the tree's sum");
        },
        channel);
}

TEST_CASE("another order of addition has other bits: these tests notice it",
          "[shard_tree][quick]") {
  for (const int shards : {5, 8}) {
    Tensor in_order = summand(0, 1000);
    Tensor reversed = summand(shards - 1, 1000);
    for (int s = 1; s < shards; ++s) {
      in_order = sum_of(in_order, summand(s, 1000));
      reversed = sum_of(reversed, summand(shards - 1 - s, 1000));
    }
    CHECK_FALSE(same_bits(in_order, tree_sum(0, shards, 1000)));
    CHECK_FALSE(same_bits(reversed, tree_sum(0, shards, 1000)));
  }
}

TEST_CASE("an error where a shard's turn begins ends all of them", "[shard_tree][quick][threads]") {
  const int failing = GENERATE(0, 1, 2);
  int computed = 0;
  Lockstep lockstep(3, [&](int member) {
    if (member == failing) throw Error("no memory for its buffers");
  });
  REQUIRE_THROWS_WITH(lockstep.run([&](int) { ++computed; }), "no memory for its buffers");
  REQUIRE(computed == failing);  // those before it
}

}  // namespace ringgrad::test::shard_tree_test
