// The exercise on buckets: cut an arena into ranges of gradients that travel together.
#include "ringgrad/distributed/buckets/bucket_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/autograd/arena.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace bucket_plan_exercise {
namespace {

using Plan = decltype(plan_buckets);
using Buckets = std::vector<BucketRange>;

// Returns an arena whose parameters have these sizes in elements. Each begins at a cache line.
ArenaRange arena_of(const std::vector<int64_t>& sizes, DType dtype) {
  ArenaRange arena;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    arena.offsets.push_back(at);
    arena.parameters.push_back(static_cast<int>(arena.parameters.size()));
    at += (size + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  arena.grads = zeros({arena.offsets.back() + sizes.back()}, {.dtype = dtype});
  return arena;
}

Buckets plan_of(Plan* plan, const ArenaRange& arena, const BucketCaps& caps) {
  return plan({arena}, arena.parameters, caps);
}

std::string drawing(const char* title, const ArenaRange& arena, const Buckets& buckets) {
  std::string text = fmt::format("{}\n", title);
  const auto item = static_cast<int64_t>(itemsize(arena.grads.dtype()));
  const size_t shown = std::min<size_t>(buckets.size(), 12);
  for (size_t b = 0; b < shown; ++b) {
    const auto& [index, begin, end, parameters] = buckets[b];
    text += fmt::format("  bucket {:<3} elements {:>5} to {:<5} {:>6} bytes   parameters {}\n", b,
                        begin, end, (end - begin) * item, fmt::join(parameters, ", "));
  }
  if (shown < buckets.size()) text += fmt::format("  and {} more\n", buckets.size() - shown);
  return text + (buckets.empty() ? "  no bucket\n" : "");
}

[[noreturn]] void wrong(const ArenaRange& arena, const BucketCaps& caps, const Buckets& buckets,
                        const std::string& what) {
  throw Wrong(
      fmt::format("{}\nParameters begin at elements {}, the arena ends at {}; "
                  "the first bucket's cap is {} bytes, the others' {}.\n{}",
                  what, fmt::join(arena.offsets, ", "), arena.grads.numel(), caps.first_bytes,
                  caps.bytes, drawing("your buckets:", arena, buckets)));
}

// Exactly these, as {begin, end, parameters}.
void check_plan(Plan* plan, const std::vector<int64_t>& sizes, const BucketCaps& caps,
                const Buckets& expected) {
  const ArenaRange arena = arena_of(sizes, DType::Float32);
  const Buckets got = plan_of(plan, arena, caps);
  const auto same = [](const BucketRange& a, const BucketRange& b) {
    return a.arena == b.arena && a.begin == b.begin && a.end == b.end &&
           a.parameters == b.parameters;
  };
  if (!std::equal(got.begin(), got.end(), expected.begin(), expected.end(), same))
    wrong(arena, caps, got, drawing("expected:", arena, expected));
}

// Checks the rules for any sizes and caps. A bucket goes on until the next whole parameter would
// take it over its cap. A parameter larger than a bucket fills whole buckets alone, except for its
// end.
void check_rules(Plan* plan, const ArenaRange& arena, const BucketCaps& caps) {
  const Buckets buckets = plan_of(plan, arena, caps);
  const auto item = static_cast<int64_t>(itemsize(arena.grads.dtype()));
  const auto fail = [&](const std::string& what) { wrong(arena, caps, buckets, what); };
  const auto end_of = [&](size_t k) {
    return k + 1 < arena.offsets.size() ? arena.offsets[k + 1] : arena.grads.numel();
  };
  int64_t at = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const auto& [index, begin, end, parameters] = buckets[b];
    if (begin != at || end <= begin)
      fail(
          fmt::format("Bucket {} has elements {} to {}, expected it to begin at {}, "
                      "and not to be empty: each element travels once.",
                      b, begin, end, at));
    at = end;
    const int64_t bytes = b == 0 ? caps.first_bytes : caps.bytes;
    const int64_t cap = std::max<int64_t>(bytes / item / kArenaAlignment, 1) * kArenaAlignment;
    if (end - begin > cap)
      fail(
          fmt::format("Bucket {} has {} bytes, over its cap of {} (whole cache lines of {} "
                      "elements, one at least).",
                      b, (end - begin) * item, bytes, kArenaAlignment));
    std::vector<int> reach;
    for (size_t k = 0; k < arena.offsets.size(); ++k)
      if (arena.offsets[k] < end && end_of(k) > begin) reach.push_back(arena.parameters[k]);
    if (parameters != reach)
      fail(
          fmt::format("Bucket {} lists parameters {}, expected {}: "
                      "it is ready when all that reach into it are.",
                      b, fmt::join(parameters, ", "), fmt::join(reach, ", ")));
    if (end == arena.grads.numel()) continue;
    const auto cut =
        std::lower_bound(arena.offsets.begin(), arena.offsets.end(), end) - arena.offsets.begin();
    const bool between =
        static_cast<size_t>(cut) < arena.offsets.size() && arena.offsets[cut] == end;
    if (between && end_of(cut) - begin <= cap)
      fail(
          fmt::format("Bucket {} ends before parameter {}, which would still fit: "
                      "many small buckets cost latency.",
                      b, cut));
    if (!between && (begin < arena.offsets[cut - 1] || end - begin != cap))
      fail(
          fmt::format("Bucket {} ends inside parameter {}; only one that is larger than a bucket "
                      "is split, into full buckets of its own.",
                      b, cut - 1));
  }
  if (at != arena.grads.numel())
    fail(fmt::format("The buckets end at element {}, expected {}.", at, arena.grads.numel()));
}

void grade(Grading& grading, const LearnersCode& code) {
  Plan* const plan = code.instead_of(&plan_buckets);
  grading.check("five parameters, caps of 128 and 192 bytes", [=] {
    check_plan(plan, {16, 10, 32, 16, 48}, {.first_bytes = 128, .bytes = 192},
               {{0, 0, 32, {0, 1}}, {0, 32, 80, {2, 3}}, {0, 80, 128, {4}}});
  });
  grading.check("a parameter that is larger than a bucket is split, and its end takes others in",
                [=] {
                  check_plan(plan, {8, 100, 16}, {.first_bytes = 128, .bytes = 128},
                             {{0, 0, 16, {0}},
                              {0, 16, 48, {1}},
                              {0, 48, 80, {1}},
                              {0, 80, 112, {1}},
                              {0, 112, 144, {1, 2}}});
                });
  grading.check("every element once, within the caps, for all sizes of caps and elements", [=] {
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16})
      for (const int64_t first : {1, 64, 200, 4096, 1 << 20})
        for (const int64_t cap : {1, 64, 200, 4096, 1 << 20}) {
          check_rules(plan, arena_of({1, 700, 16, 3, 5000, 64, 1}, dtype), {first, cap});
          check_rules(plan, arena_of({2000}, dtype), {first, cap});
        }
  });
  grading.check(
      "two arenas: each bucket lies in one, and they come in the order of readiness", [=] {
        ArenaRange low = arena_of({16, 16}, DType::Float32);
        ArenaRange high = arena_of({16, 16}, DType::Float64);
        low.parameters = {0, 3};
        high.parameters = {1, 2};
        const Buckets buckets = plan({low, high}, {0, 1, 2, 3}, {.first_bytes = 1, .bytes = 1});
        std::vector<int> order;
        for (const BucketRange& bucket : buckets)
          order.insert(order.end(), bucket.parameters.begin(), bucket.parameters.end());
        if (order != std::vector{0, 1, 2, 3})
          throw Wrong(
              fmt::format("parameters 0 and 3 lie in one arena, 1 and 2 in another, "
                          "each is a bucket: the buckets' order is {}, expected 0, 1, 2, 3",
                          fmt::join(order, ", ")));
      });
}

}  // namespace
}  // namespace bucket_plan_exercise

const Exercise exercises::kBucketPlan = {
    .name = "bucket plan",
    .source = "distributed/buckets/bucket_plan.cpp",
    .blanks = {"void cut("},
    .task =
        R"(
Gradients lie one after the other in an arena, in the order in which backward finishes them. A bucket is a range of
it, which is averaged over the ranks as one: small buckets travel early, large ones cost less per byte.

Append the buckets of one arena to `buckets`: each takes parameters as long as they fit under its cap, which is
caps.first_bytes for the very first bucket and caps.bytes for the others, in whole cache lines (kArenaAlignment
elements), at least one. A parameter's range goes to where the next one begins. One that is larger than a bucket is
cut into full buckets of its own, and its end goes on as any other would. A bucket lists all the parameters that
reach into it.

The contract stands in distributed/buckets/bucket_plan.h, ArenaRange in autograd/arena.h.)",
    .grade = bucket_plan_exercise::grade,
};

}  // namespace ringgrad::program
