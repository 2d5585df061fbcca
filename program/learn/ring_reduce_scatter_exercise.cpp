// The exercise on the first half of the ring all-reduce.
#include "ringgrad/distributed/other_collectives/other_collectives.h"

#include <cstring>

#include <fmt/format.h>

#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"
#include "ringgrad/program/learn/ring_traffic.h"

namespace ringgrad::program {
namespace ring_reduce_scatter_exercise {
namespace {

using nlohmann::json;

using ReduceScatter = decltype(ring_reduce_scatter);

// Runs the function on each rank. An answer has the rank's y, whether x is unchanged, and its
// messages.
template <class T, class Element>
std::vector<json> reduce_scatter(ReduceScatter* function, int size, size_t count, ReduceOp op,
                                 size_t segment, const Element& element) {
  return answers_of(run_forked_ranks(size, [&](std::unique_ptr<Transport> transport) -> json {
    Transport& t = *transport;
    std::vector<T> x(static_cast<size_t>(size) * count);
    std::vector<T> y(count);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(element(t.rank(), i));
    const std::vector<T> before = x;
    Watched watched;
    auto messages = messenger(t, Operation::ReduceScatter, count, watched.observer);
    function(messages, y.data(), x.data(), count, reduction("reduce_scatter", dtype_of<T>, op),
             segment);
    json values = json::array();
    for (const T value : y) values.push_back(static_cast<double>(value));
    const bool kept = std::memcmp(x.data(), before.data(), x.size() * sizeof(T)) == 0;
    return {{"y", values}, {"kept", kept}, {"sent", watched.messages}};
  }));
}

// Compares every element with a sum done here, of small numbers, which every order adds up exactly.
template <class T>
void check_sums(ReduceScatter* function, int size, size_t count, ReduceOp op, size_t segment) {
  const auto element = [](int rank, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 3) % 11);
  };
  const auto answers = reduce_scatter<T>(function, size, count, op, segment, element);
  for (int r = 0; r < size; ++r) {
    for (size_t i = 0; i < count; ++i) {
      double want = 0;
      for (int k = 0; k < size; ++k) want += element(k, static_cast<size_t>(r) * count + i);
      if (op == ReduceOp::Average) want /= size;
      if (const double got = answers[r]["y"][i]; got != want)
        throw Wrong(
            fmt::format("{} ranks, {} elements each of {}, segments of {} bytes: rank {}'s element "
                        "{} is {}, expected {}, the {} of all ranks' elements there",
                        size, count, name(dtype_of<T>), segment, r, i, got, want, name(op)));
    }
    if (!answers[r]["kept"])
      throw Wrong(
          fmt::format("rank {}'s x has changed; it is the caller's, and stays as it is", r));
  }
}

void check_four_numbers(ReduceScatter* function) {
  constexpr int kRanks = 4;
  const auto answers =
      reduce_scatter<int32_t>(function, kRanks, 1, ReduceOp::Sum, kWholeChunk,
                              [](int rank, size_t i) { return digit(rank, static_cast<int>(i)); });
  std::vector<std::vector<int>> expected(kRanks);
  std::vector<json> has;
  std::vector<json> sums;
  bool right = true;
  for (int r = 0; r < kRanks; ++r) {
    // This is chunk r - 1 - step, with the sums of ranks r - step … r.
    for (int step = 0; step < kRanks - 1; ++step) {
      const int chunk = static_cast<int>(ringgrad::wrapped(r - 1 - step, kRanks));
      int partial = 0;
      for (int k = 0; k <= step; ++k)
        partial += digit(static_cast<int>(ringgrad::wrapped(r - k, kRanks)), chunk);
      expected[r].push_back(partial);
    }
    sums.push_back(json::array({1111 * (r + 1)}));
    json whole = json::array();
    for (const json& value : answers[r]["y"]) whole.push_back(value.get<int>());
    has.push_back(whole);
    right = right && whole == sums.back();
  }
  if (!right)
    throw Wrong(
        "Rank 0 has 1 2 3 4, rank 1 has 10 20 30 40, rank 2 has 100 …: "
        "each rank has a digit in a sum.\n" +
        drawing("what happened:", numbers_sent(answers), has) +
        drawing("expected:", expected, sums));
}

void grade_reduce_scatter(Grading& grading, const LearnersCode& code) {
  ReduceScatter* const function = code.instead_of(&ring_reduce_scatter);
  grading.check("four ranks with four numbers each", [=] { check_four_numbers(function); });
  grading.check("1, 2, 3 and 5 ranks; 0, 1, 7 and 1,000 elements; whole and in segments", [=] {
    for (const int size : {1, 2, 3, 5})
      for (const size_t count : {0, 1, 7, 1000})
        for (const size_t segment : {size_t{64}, kWholeChunk})
          check_sums<float>(function, size, count, ReduceOp::Sum, segment);
    check_sums<int64_t>(function, 3, 50, ReduceOp::Sum, 64);
  });
  grading.check("an average is divided, once", [=] {
    check_sums<float>(function, 2, 10, ReduceOp::Average, kWholeChunk);
    check_sums<double>(function, 4, 10, ReduceOp::Average, 64);
  });
  grading.check("16-bit floats are added up in 32 bits, and rounded once", [=] {
    // The signs alternate. No bytes that happen to lie in memory look like that.
    const auto sign = [](size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; };
    const auto answers = reduce_scatter<bfloat16>(
        function, 3, 6, ReduceOp::Sum, kWholeChunk,
        [=](int rank, size_t i) { return (rank == 1 ? 256.0f : 1.0f) * sign(i); });
    for (size_t i = 0; i < 3 * 6; ++i)
      if (const double got = answers[i / 6]["y"][i % 6].get<double>() * sign(i); got != 258)
        throw Wrong(fmt::format(
            "256 + 1 + 1 is {} on rank {}, expected 258: with the 8 bits of a bfloat16, "
            "256 + 1 is 256. What comes in from the second step on, and what goes out, "
            "are partial results (combine_wide, wide_bytes)",
            got, i / 6));
  });
  grading.check("bytes: a rank sends (n-1)/n of its S, so with the all-gather 2(n-1)/n · S", [=] {
    const auto ones = [](int, size_t) { return 1.0f; };
    check_traffic(reduce_scatter<float>(function, 4, 1000, ReduceOp::Sum, 512, ones), 3 * 4000,
                  512);
    check_traffic(reduce_scatter<float>(function, 5, 1000, ReduceOp::Sum, kWholeChunk, ones),
                  4 * 4000, kWholeChunk);
  });
  grading.check("a rank is killed in the middle", [=] {
    check_killed_rank(Operation::ReduceScatter, 64, [=](Messenger& messages, int) {
      std::vector<float> x(3 * 64);
      std::vector<float> y(64);
      function(messages, y.data(), x.data(), 64,
               reduction("reduce_scatter", DType::Float32, ReduceOp::Sum), 32);
    });
  });
}

}  // namespace
}  // namespace ring_reduce_scatter_exercise

const Exercise exercises::kRingReduceScatter = {
    .name = "ring reduce-scatter",
    .source = "distributed/other_collectives/ring_reduce_scatter.cpp",
    .blanks = {"void ring_reduce_scatter("},
    .task =
        R"(
The first half of the ring all-reduce. x has one chunk of `count` elements per rank; rank r is to end up with the
sum of all ranks' chunk r, in y. Each rank sends to its right neighbour only, and receives from its left one; a
chunk goes round the ring once, and every rank that it passes adds its own elements. In size-1 steps each rank sends
(size-1)/size of its x, which is the least possible.

messages.send() only queues: what it is given must stay as it is until wait() or finish(). reduction.combine_items
adds elements that come in, combine_wide partial results; finish() makes the result of a sum (an average divides
there). Segments let one piece travel while the next is being added: for_each_turn() in ring_parts.h says
when which is whose turn.

The contract stands in distributed/other_collectives/other_collectives.h.)",
    .grade = ring_reduce_scatter_exercise::grade_reduce_scatter,
};

}  // namespace ringgrad::program
