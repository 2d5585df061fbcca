// The two halves of the ring all-reduce: reduce-scatter and all-gather.
#include "ringgrad/distributed/collectives/ring.h"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "ringgrad/models/program/learn/forked_ranks.h"
#include "ringgrad/models/program/learn/grading.h"
#include "ringgrad/models/program/learn/learn.h"
#include "ringgrad/models/program/learn/learners_code.h"

namespace ringgrad::program {
namespace ring_exercise {
namespace {

using nlohmann::json;

// What a rank sends: bytes by message, to whom, and where it is numbers, which.
struct Watched {
  json messages = json::array();
  SendObserver observer = [this](int peer, std::span<const std::byte> payload) {
    int32_t number = 0;
    if (payload.size() >= sizeof number) std::memcpy(&number, payload.data(), sizeof number);
    messages.push_back({{"to", peer}, {"bytes", payload.size()}, {"number", number}});
  };
};

Messenger messenger(Transport& t, Operation operation, uint64_t count, const SendObserver& observer) {
  Frame frame;
  frame.operation = operation;
  frame.sequence = t.position().frame.sequence + 1;
  frame.count = count;
  t.enter(frame);
  return Messenger(t, frame, Checksums::Off, {}, observer);
}

std::string list(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

// Rank r's number c is (c + 1) · 10^r: in a sum each rank has a digit of its own, which tells whether it is in.
int32_t digit(int rank, int c) {
  int32_t n = c + 1;
  for (int i = 0; i < rank; ++i) n *= 10;
  return n;
}

// One line per rank: its messages, and what it ended up with.
std::string drawing(const char* title, const std::vector<std::vector<int>>& sent, const std::vector<json>& has) {
  std::string text = fmt::format("{}\n", title);
  for (size_t r = 0; r < sent.size(); ++r) {
    std::vector<std::string> words;
    for (const int number : sent[r]) words.push_back(fmt::format("{:>4}", number));
    text += fmt::format("  rank {}  sends {:<24} has {}\n", r, list(words, ", "), has[r].dump());
  }
  return text;
}

std::vector<std::vector<int>> numbers_sent(const std::vector<json>& answers) {
  std::vector<std::vector<int>> sent;
  for (const json& answer : answers) {
    sent.emplace_back();
    for (const json& message : answer["sent"]) sent.back().push_back(message["number"]);
  }
  return sent;
}

// Each rank's bytes are that many, in messages to its right neighbour of at most `segment` bytes.
void check_traffic(const std::vector<json>& answers, size_t bytes, size_t segment) {
  const int size = static_cast<int>(answers.size());
  for (int r = 0; r < size; ++r) {
    size_t sum = 0;
    for (const json& message : answers[r]["sent"]) {
      if (const int to = message["to"]; to != (r + 1) % size)
        throw Wrong(fmt::format("rank {} sent something to rank {}; in a ring of {} it sends to rank {} only", r, to,
                                size, (r + 1) % size));
      const size_t piece = message["bytes"];
      sum += piece;
      if (piece > segment)
        throw Wrong(fmt::format("rank {} sent {} bytes in one message; a segment has at most {}", r, piece, segment));
    }
    if (sum != bytes) throw Wrong(fmt::format("rank {} sent {} bytes, expected {}", r, sum, bytes));
  }
}

// collective(messages, rank) on three ranks, of which rank 1 is killed when it sends its third message.
template <class Collective>
void check_killed_rank(Operation operation, uint64_t count, const Collective& collective) {
  const auto results = run_forked_ranks(3, [&](std::unique_ptr<Transport> transport) -> json {
    Transport& t = *transport;
    int messages = 0;
    const SendObserver killer = [&](int, std::span<const std::byte>) {
      if (t.rank() == 1 && ++messages == 3) std::raise(SIGKILL);
    };
    auto own = messenger(t, operation, count, killer);
    collective(own, t.rank());
    return "returned";
  });
  for (const int r : {0, 2}) {
    const RankResult& result = results[r];
    if (!result.answer.is_null())
      throw Wrong(
          fmt::format("rank 1 was killed in the middle, and rank {} returned as if nothing had happened, with wrong "
                      "numbers; what send() and recv() throw must reach the caller",
                      r));
    if (result.error.find("rank 1") == std::string::npos)
      throw Wrong(fmt::format("rank 1 was killed, and rank {} {}, expected an error that names rank 1", r,
                              result.error.empty() ? result.killed : "threw: " + result.error));
  }
}

// -- reduce-scatter ---------------------------------------------------------------------------------------------------

using ReduceScatter = decltype(ring_reduce_scatter);

// What rank r has: its y, whether x is what it was, and its messages.
template <class T, class Element>
std::vector<json> reduce_scatter(ReduceScatter* function, int size, size_t count, ReduceOp op, size_t segment,
                                 const Element& element) {
  return answers_of(run_forked_ranks(size, [&](std::unique_ptr<Transport> transport) -> json {
    Transport& t = *transport;
    std::vector<T> x(static_cast<size_t>(size) * count), y(count);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(element(t.rank(), i));
    const std::vector<T> before = x;
    Watched watched;
    auto messages = messenger(t, Operation::ReduceScatter, count, watched.observer);
    function(messages, y.data(), x.data(), count, reduction("reduce_scatter", dtype_of<T>, op), segment);
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
            fmt::format("{} ranks, {} elements each of {}, segments of {} bytes: rank {}'s element {} is {}, expected "
                        "{}, the {} of all ranks' elements there",
                        size, count, name(dtype_of<T>), segment, r, i, got, want, name(op)));
    }
    if (!answers[r]["kept"])
      throw Wrong(fmt::format("rank {}'s x has changed; it is the caller's, and stays as it is", r));
  }
}

void check_four_numbers(ReduceScatter* function) {
  constexpr int kRanks = 4;
  const auto answers = reduce_scatter<int32_t>(function, kRanks, 1, ReduceOp::Sum, kWholeChunk,
                                               [](int rank, size_t i) { return digit(rank, static_cast<int>(i)); });
  std::vector<std::vector<int>> expected(kRanks);
  std::vector<json> has, sums;
  bool right = true;
  for (int r = 0; r < kRanks; ++r) {
    for (int step = 0; step < kRanks - 1; ++step) {  // chunk r - 1 - step, with what ranks r - step … r have added
      const int chunk = static_cast<int>(wrapped(r - 1 - step, kRanks));
      int partial = 0;
      for (int k = 0; k <= step; ++k) partial += digit(static_cast<int>(wrapped(r - k, kRanks)), chunk);
      expected[r].push_back(partial);
    }
    sums.push_back(json::array({1111 * (r + 1)}));
    json whole = json::array();
    for (const json& value : answers[r]["y"]) whole.push_back(value.get<int>());
    has.push_back(whole);
    right = right && whole == sums.back();
  }
  if (!right)
    throw Wrong("Rank 0 has 1 2 3 4, rank 1 has 10 20 30 40, rank 2 has 100 …: each rank has a digit in a sum.\n" +
                drawing("what happened:", numbers_sent(answers), has) + drawing("expected:", expected, sums));
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
    const auto answers = reduce_scatter<bfloat16>(function, 3, 1, ReduceOp::Sum, kWholeChunk,
                                                  [](int rank, size_t) { return rank == 1 ? 256.0f : 1.0f; });
    for (int r = 0; r < 3; ++r)
      if (const double got = answers[r]["y"][0]; got != 258)
        throw Wrong(
            fmt::format("256 + 1 + 1 is {} on rank {}, expected 258: with the 8 bits of a bfloat16, 256 + 1 is 256. "
                        "What comes in from the second step on, and what goes out, are partial results "
                        "(combine_wide, wide_bytes)",
                        got, r));
  });
  grading.check("bytes: a rank sends (n-1)/n of its S, so with the all-gather 2(n-1)/n · S", [=] {
    const auto ones = [](int, size_t) { return 1.0f; };
    check_traffic(reduce_scatter<float>(function, 4, 1000, ReduceOp::Sum, 512, ones), 3 * 4000, 512);
    check_traffic(reduce_scatter<float>(function, 5, 1000, ReduceOp::Sum, kWholeChunk, ones), 4 * 4000, kWholeChunk);
  });
  grading.check("a rank is killed in the middle", [=] {
    check_killed_rank(Operation::ReduceScatter, 64, [=](Messenger& messages, int) {
      std::vector<float> x(3 * 64), y(64);
      function(messages, y.data(), x.data(), 64, reduction("reduce_scatter", DType::Float32, ReduceOp::Sum), 32);
    });
  });
}

// -- all-gather
// ---------------------------------------------------------------------------------------------------------

using AllGather = decltype(ring_all_gather);

// Rank r gives counts[r] numbers: r · 1000, r · 1000 + 1, …; or, where there is one each, its digit.
int32_t given(int rank, size_t i, bool digits) {
  return digits ? digit(rank, rank) : rank * 1000 + static_cast<int32_t>(i);
}

std::vector<json> all_gather(AllGather* function, const std::vector<size_t>& counts, size_t segment, bool in_place,
                             bool digits = false) {
  return answers_of(
      run_forked_ranks(static_cast<int>(counts.size()), [&](std::unique_ptr<Transport> transport) -> json {
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
        function(messages, places,
                 in_place ? std::span<const std::byte>(places[t.rank()]) : std::as_bytes(std::span(x)), segment);
        return {{"y", y}, {"sent", watched.messages}};
      }));
}

void check_gathered(AllGather* function, const std::vector<size_t>& counts, size_t segment, bool in_place) {
  const auto answers = all_gather(function, counts, segment, in_place);
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t part = 0; part < counts.size(); ++part)
      for (size_t i = 0; i < counts[part]; ++i)
        if (const int got = answers[r]["y"][part][i]; got != given(static_cast<int>(part), i, false))
          throw Wrong(
              fmt::format("{} ranks that give [{}] numbers{}: on rank {}, places[{}] has {} at {}, expected {}{}",
                          counts.size(), fmt::join(counts, ", "), in_place ? ", x being its place" : "", r, part, got,
                          i, given(static_cast<int>(part), i, false), got == -1 ? "; nothing was put there" : ""));
}

void check_four_places(AllGather* function) {
  const auto answers = all_gather(function, {1, 1, 1, 1}, kWholeChunk, false, /*digits=*/true);
  const json all = json::array({1, 20, 300, 4000});
  std::vector<std::vector<int>> expected;
  std::vector<json> has;
  bool right = true;
  for (int r = 0; r < 4; ++r) {
    expected.push_back({all[r], all[wrapped(r - 1, 4)], all[wrapped(r - 2, 4)]});
    json places = json::array();
    for (const json& place : answers[r]["y"]) places.push_back(place[0]);
    has.push_back(places);
    right = right && places == all;
  }
  if (!right)
    throw Wrong("Rank 0 gives 1, rank 1 gives 20, rank 2 gives 300, rank 3 gives 4000; -1: nothing was put there.\n" +
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
  grading.check("x may be its own place", [=] { check_gathered(function, {5, 5, 5}, kWholeChunk, true); });
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
}  // namespace ring_exercise

const Exercise exercises::kRingReduceScatter = {
    .name = "ring reduce-scatter",
    .source = "distributed/collectives/ring_reduce_scatter.cpp",
    .blanks = {"void ring_reduce_scatter("},
    .task =
        R"(
The first half of the ring all-reduce. x has one chunk of `count` elements per rank; rank r is to end up with the
sum of all ranks' chunk r, in y. Each rank sends to its right neighbour only, and receives from its left one; a
chunk goes round the ring once, and every rank that it passes adds its own elements. In size-1 steps each rank sends
(size-1)/size of its x, which is the least possible.

messages.send() only queues: what it is given must stay as it is until wait() or finish(). reduction.combine_items
adds elements that come in, combine_wide partial results; finish() makes the result of a sum (an average divides
there). Segments let one piece travel while the next is being added: for_each_segment() in ring_parts.h cuts a
chunk. The contract stands in distributed/collectives/ring.h.)",
    .grade = ring_exercise::grade_reduce_scatter,
};

const Exercise exercises::kRingAllGather = {
    .name = "ring all-gather",
    .source = "distributed/collectives/ring_all_gather.cpp",
    .blanks = {"void ring_all_gather("},
    .task =
        R"(
The second half of the ring all-reduce. Rank r has x; in the end all ranks have it, in places[r]. Each rank sends to
its right neighbour only: first its own, then what came in from the left. In size-1 steps each rank sends all places
but one. Places may differ in size, or be empty, and x may lie in its own place already.

messages.send() only queues: what it is given must stay as it is until finish(). The contract stands in
distributed/collectives/ring.h.)",
    .grade = ring_exercise::grade_all_gather,
};

}  // namespace ringgrad::program
