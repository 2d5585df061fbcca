// The exercise on overlap: decide when a bucket may leave, so that communication and backward
// overlap.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/distributed/buckets/launch_order.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace overlap_exercise {
namespace {

using Lists = std::vector<std::vector<int>>;

// The learner's two functions, as the reducer calls them.
struct Overlap {
  decltype(&buckets_completed) completed;
  decltype(&launchable) may_launch;
};

// A backward pass. Parameters become ready one after the other, one per tick. It records when each
// bucket was launched.
struct Pass {
  std::vector<int> launched;  // the order
  std::vector<int> at;        // by bucket: the tick; -1: left to the end of backward
  std::vector<int> complete;  // by bucket: the tick in which it was said to be complete; -1: never
};

Pass run(const Overlap& overlap, const Lists& buckets, const std::vector<int>& ready_order) {
  const auto count = static_cast<int>(buckets.size());
  Pass pass{{}, std::vector<int>(buckets.size(), -1), std::vector<int>(buckets.size(), -1)};
  std::vector<int> pending;
  for (const auto& bucket : buckets) pending.push_back(static_cast<int>(bucket.size()));
  size_t next = 0;
  for (int tick = 0; tick < static_cast<int>(ready_order.size()); ++tick) {
    std::vector<int> reaches_into;
    for (int b = 0; b < count; ++b)
      if (std::count(buckets[b].begin(), buckets[b].end(), ready_order[tick]) > 0)
        reaches_into.push_back(b);
    for (const int b : overlap.completed(pending, reaches_into)) {
      if (b < 0 || b >= count)
        throw Wrong(fmt::format("buckets_completed() returned bucket {} of {}", b, count));
      pass.complete[b] = tick;
      const size_t end = overlap.may_launch(pending, next);
      if (end < next || end > buckets.size())
        throw Wrong(fmt::format("launchable() returned {} when {} of {} buckets had been launched",
                                end, next, count));
      for (; next < end; ++next) {
        pass.launched.push_back(static_cast<int>(next));
        pass.at[next] = tick;
      }
    }
  }
  return pass;
}

// One line per bucket over the ticks of backward: when it was complete, and when it left.
std::string drawing(const Lists& buckets, const std::vector<int>& ready_order, const Pass& pass) {
  std::string text = fmt::format("parameter ready  {}\n", fmt::join(ready_order, " "));
  for (size_t b = 0; b < buckets.size(); ++b) {
    std::string line =
        fmt::format("bucket {} of {:<6}", b, fmt::format("{}", fmt::join(buckets[b], " ")));
    for (int tick = 0; tick < static_cast<int>(ready_order.size()); ++tick)
      line += tick == pass.at[b]                     ? "L "
              : tick == pass.complete[b]             ? "c "
              : pass.at[b] >= 0 && tick > pass.at[b] ? "━ "
                                                     : "· ";
    text += line + "\n";
  }
  return text + "c: its last parameter was ready; L: it was launched, from then on it travels\n";
}

void expect_times(const Overlap& overlap, const Lists& buckets, const std::vector<int>& order,
                  const std::vector<int>& at) {
  const Pass pass = run(overlap, buckets, order);
  if (pass.at != at) {
    Pass right = pass;
    right.at = at;
    throw Wrong("what happened:\n" + drawing(buckets, order, pass) + "expected:\n" +
                drawing(buckets, order, right));
  }
}

// Returns the part of the averages' time that backward hides, if each bucket takes one tick, one
// after the other.
double hidden(const Pass& pass, int ticks) {
  int until = 0;
  int hidden = 0;
  for (const int at : pass.at) {
    const int begin = std::max(until, at < 0 ? ticks : at + 1);
    until = begin + 1;
    hidden += until <= ticks;
  }
  return static_cast<double>(hidden) / static_cast<double>(pass.at.size());
}

void check_overlap(const Overlap& overlap) {
  constexpr int kBuckets = 8;
  Lists buckets;
  std::vector<int> order;
  for (int b = 0; b < kBuckets; ++b) {
    buckets.push_back({2 * b, 2 * b + 1});
    order.insert(order.end(), {2 * b, 2 * b + 1});
  }
  const Pass pass = run(overlap, buckets, order);
  const double got = hidden(pass, static_cast<int>(order.size()));
  if (got < 0.85)
    throw Wrong(fmt::format("8 buckets that take half as long as backward: backward hides {:.0f} % "
                            "of it, expected 88 % (all but the last bucket)\n",
                            100 * got) +
                drawing(buckets, order, pass));
}

// Ranks whose gradients become ready in other orders must issue the same collectives.
void check_any_order(const Overlap& overlap) {
  const Lists buckets = {{0, 1}, {1, 2}, {3}, {4, 5}};
  std::vector<int> order(6);
  std::iota(order.begin(), order.end(), 0);
  do {
    const Pass pass = run(overlap, buckets, order);
    for (size_t i = 0; i < pass.launched.size(); ++i)
      if (pass.launched[i] != static_cast<int>(i))
        throw Wrong(fmt::format("gradients ready in the order {}: "
                                "buckets left in the order {}, and on another rank in another: "
                                "they would add up different things\n",
                                fmt::join(order, " "), fmt::join(pass.launched, " ")) +
                    drawing(buckets, order, pass));
    for (size_t b = 0; b < buckets.size(); ++b) {
      // The last of its parameters; the last of those of all buckets up to it.
      int complete = 0;
      int may = 0;
      for (size_t k = 0; k <= b; ++k)
        for (const int p : buckets[k]) {
          const auto at =
              static_cast<int>(std::find(order.begin(), order.end(), p) - order.begin());
          may = std::max(may, at);
          if (k == b) complete = std::max(complete, at);
        }
      const bool last = b + 1 == buckets.size();
      if (pass.complete[b] != complete || pass.at[b] != (last ? -1 : may))
        throw Wrong(
            fmt::format(
                "gradients ready in the order {}: bucket {} is complete at {}, and may leave {}\n",
                fmt::join(order, " "), b, complete,
                last ? "after backward" : fmt::format("at {}", may)) +
            drawing(buckets, order, pass));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

void grade(Grading& grading, const LearnersCode& code) {
  const Overlap overlap{code.instead_of(&buckets_completed), code.instead_of(&launchable)};
  grading.check("three buckets of two parameters, ready in their order", [=] {
    expect_times(overlap, {{0, 1}, {2, 3}, {4, 5}}, {0, 1, 2, 3, 4, 5}, {1, 3, -1});
  });
  grading.check("a bucket that is complete early waits for those before it", [=] {
    expect_times(overlap, {{0, 1}, {2}, {3}, {4}}, {2, 3, 0, 1, 4}, {3, 3, 3, -1});
  });
  grading.check("a parameter that reaches into two buckets", [=] {
    expect_times(overlap, {{0, 1}, {1, 2}, {3}}, {0, 2, 1, 3}, {2, 2, -1});
  });
  grading.check("any order of readiness: the same order of buckets, each at its time",
                [=] { check_any_order(overlap); });
  grading.check("backward hides all but the last bucket", [=] { check_overlap(overlap); });
}

}  // namespace
}  // namespace overlap_exercise

const Exercise exercises::kOverlap = {
    .name = "overlap",
    .source = "distributed/buckets/launch_order.cpp",
    .blanks = {"std::vector<int> buckets_completed(", "size_t launchable("},
    .task =
        R"(
While backward runs, parameters become ready, one after the other, and each time the reducer calls these two: which
buckets has this one completed, and up to which bucket may all-reduces be launched now?

A bucket may leave when all its parameters are ready and all buckets before it have left: ranks may see other
orders, and must issue the same collectives. The last one does not leave here, even when it is complete: backward is
over then, and the caller executes it without handing it to another thread.

The contract stands in distributed/buckets/launch_order.h.)",
    .grade = overlap_exercise::grade,
};

}  // namespace ringgrad::program
