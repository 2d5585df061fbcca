// The exercise on the second half of the ring all-reduce.
#include "ringgrad/distributed/other_collectives/other_collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"
#include "ringgrad/program/learn/ring_traffic.h"

namespace ringgrad::program {
namespace ring_all_gather_exercise {
namespace {

using nlohmann::json;

// -------------------------------------------------------------------------------------------------

using AllGather = decltype(ring_all_gather);

// Rank r gives counts[r] numbers: r · 1000, r · 1000 + 1, …; or its digit, if each rank gives one
// number.
int32_t given(int rank, size_t i, bool digits) {
  return digits ? digit(rank, rank) : rank * 1000 + static_cast<int32_t>(i);
}

std::vector<json> all_gather(AllGather* function, const std::vector<size_t>& counts, size_t segment,
                             bool in_place, bool digits = false) {
  return answers_of(run_forked_ranks(
      static_cast<int>(counts.size()), [&](std::unique_ptr<Transport> transport) -> json {
        Transport& t = *transport;
        std::vector<std::vector<int32_t>> y;
        std::vector<std::span<std::byte>> places;
        for (const size_t count : counts) y.emplace_back(count, -1);
        for (auto& part : y) places.push_back(std::as_writable_bytes(std::span(part)));
        std::vector<int32_t> x(counts[t.rank()]);
        for (size_t i = 0; i < x.size(); ++i) x[i] = given(t.rank(), i, digits);
        if (in_place) y[t.rank()] = x;
        Watched watched;
        auto messages = messenger(t, Operation::AllGather, counts[0], watched.observer);
        function(
            messages, places,
            in_place ? std::span<const std::byte>(places[t.rank()]) : std::as_bytes(std::span(x)),
            segment);
        return {{"y", y}, {"sent", watched.messages}};
      }));
}

void check_gathered(AllGather* function, const std::vector<size_t>& counts, size_t segment,
                    bool in_place) {
  const auto answers = all_gather(function, counts, segment, in_place);
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t part = 0; part < counts.size(); ++part)
      for (size_t i = 0; i < counts[part]; ++i)
        if (const int got = answers[r]["y"][part][i];
            got != given(static_cast<int>(part), i, false))
          throw Wrong(fmt::format(
              "{} ranks that give [{}] numbers{}: on rank {}, "
              "places[{}] has {} at {}, expected {}{}",
              counts.size(), fmt::join(counts, ", "), in_place ? ", x being its place" : "", r,
              part, got, i, given(static_cast<int>(part), i, false),
              got == -1 ? "; nothing was put there" : ""));
}

void check_four_places(AllGather* function) {
  const auto answers = all_gather(function, {1, 1, 1, 1}, kWholeChunk, false, /*digits=*/true);
  const json all = json::array({1, 20, 300, 4000});
  std::vector<std::vector<int>> expected;
  std::vector<json> has;
  bool right = true;
  for (int r = 0; r < 4; ++r) {
    expected.push_back(
        {all[r], all[ringgrad::wrapped(r - 1, 4)], all[ringgrad::wrapped(r - 2, 4)]});
    json places = json::array();
    for (const json& place : answers[r]["y"]) places.push_back(place[0]);
    has.push_back(places);
    right = right && places == all;
  }
  if (!right)
    throw Wrong(
        "Rank 0 gives 1, rank 1 gives 20, rank 2 gives 300, rank 3 gives 4000; -1: "
        "nothing was put there.\n" +
        drawing("what happened:", numbers_sent(answers), has) +
        drawing("expected:", expected, std::vector<json>(4, all)));
}

void grade_all_gather(Grading& grading, const LearnersCode& code) {
  AllGather* const function = code.instead_of(&ring_all_gather);
  grading.check("four ranks with a number each", [=] { check_four_places(function); });
  grading.check("1, 2, 3 and 5 ranks, whole and in segments", [=] {
    for (const size_t size : {1, 2, 3, 5})
      for (const size_t segment : {size_t{64}, kWholeChunk})
        check_gathered(function, std::vector<size_t>(size, 100), segment, false);
  });
  grading.check("parts of different sizes, none at all among them", [=] {
    check_gathered(function, {3, 0, 100}, 64, false);
    check_gathered(function, {0, 1, 2, 50}, kWholeChunk, false);
  });
  grading.check("x may be its own place", [=] {
    check_gathered(function, {5, 5, 5}, kWholeChunk, true);
  });
  grading.check("bytes: a rank sends all but one of the places, (n-1)/n · S", [=] {
    check_traffic(all_gather(function, {1000, 1000, 1000, 1000}, 512, false), 3 * 4000, 512);
  });
  grading.check("a rank is killed in the middle", [=] {
    check_killed_rank(Operation::AllGather, 64, [=](Messenger& messages, int rank) {
      std::vector<std::vector<float>> y(3, std::vector<float>(64));
      std::vector<std::span<std::byte>> places;
      for (auto& part : y) places.push_back(std::as_writable_bytes(std::span(part)));
      function(messages, places, places[rank], 32);
    });
  });
}

}  // namespace
}  // namespace ring_all_gather_exercise

const Exercise exercises::kRingAllGather = {
    .name = "ring all-gather",
    .source = "distributed/other_collectives/ring_all_gather.cpp",
    .blanks = {"void ring_all_gather("},
    .task =
        R"(
The second half of the ring all-reduce. Rank r has x; in the end all ranks have it, in places[r]. Each rank sends to
its right neighbour only: first its own, then what came in from the left. In size-1 steps each rank sends all places
but one. Places may differ in size, or be empty, and x may lie in its own place already.

messages.send() only queues: what it is given must stay as it is until finish().

The contract stands in distributed/other_collectives/other_collectives.h.)",
    .grade = ring_all_gather_exercise::grade_all_gather,
};

}  // namespace ringgrad::program
