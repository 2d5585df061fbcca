// The exercise on unequal batches: the weight of each rank's gradients in the average.
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace weighting_exercise {
namespace {

struct Factors {
  decltype(&factor_before) before;
  decltype(&factor_after) after;
};

// Sample i has the gradient i + 1; a rank's is the mean of its own, and all together should have
// that of all samples.
void check_mean(const Factors& factors, const std::vector<int>& samples, double usual) {
  const auto ranks = static_cast<int>(samples.size());
  const auto answers = answers_of(
      run_forked_ranks(ranks, [&](std::unique_ptr<Transport> transport) -> nlohmann::json {
        HostProcessGroup group(std::move(transport), {.timeout = std::chrono::seconds(3)});
        const int rank = group.rank();
        const int own = samples[rank];
        const int first = std::accumulate(samples.begin(), samples.begin() + rank, 0);
        double mean = 0;
        for (int i = first; i < first + own; ++i) mean += (i + 1.0) / own;
        const Tensor gradient =
            full({1}, mean * factors.before(own, usual), {.dtype = DType::Float64});
        group.all_reduce(gradient, ReduceOp::Average).wait();
        const Tensor weights = full({1}, own, {.dtype = DType::Float64});
        group.all_reduce(weights, ReduceOp::Sum).wait();
        return gradient.item<double>() * factors.after(usual, weights.item<double>(), ranks);
      }));
  const int all = std::accumulate(samples.begin(), samples.end(), 0);
  const double want = (all + 1) / 2.0;
  for (int r = 0; r < ranks; ++r)
    if (const double got = answers[r]; !(std::abs(got - want) < 1e-9))
      throw Wrong(
          fmt::format("ranks with {} samples, whose gradients are 1, 2, … {}, "
                      "a usual weight of {}: rank {} ends up with {:.6g}, expected {:.6g}, "
                      "the mean over all samples{}",
                      fmt::join(samples, ", "), all, usual, r, got, want,
                      std::abs(got * usual - want) < 1e-9 || std::abs(got / usual - want) < 1e-9
                          ? "; it is off by the usual weight"
                          : ""));
}

void grade(Grading& grading, const LearnersCode& code) {
  const Factors factors{code.instead_of(&factor_before), code.instead_of(&factor_after)};
  grading.check("two ranks with 30 and 10 samples", [=] { check_mean(factors, {30, 10}, 20); });
  grading.check("three ranks, other usual weights", [=] {
    check_mean(factors, {5, 1, 2}, 8);
    check_mean(factors, {64, 64, 3}, 64);
  });
  grading.check(
      "where all weigh what is usual, nothing is multiplied: both factors are exactly 1", [=] {
        for (const int samples : {1, 3, 7, 100, 12345})
          for (const int ranks : {1, 2, 3, 7}) {
            const double before = factors.before(samples, samples);
            const double after = factors.after(samples, samples * ranks, ranks);
            if (before != 1 || after != 1)
              throw Wrong(
                  fmt::format("{} ranks with {} samples each, as usual: "
                              "the factors are {:.17g} and {:.17g}, expected 1 and 1, "
                              "so that the bits are those of a plain mean, and no time is lost",
                              ranks, samples, before, after));
          }
      });
  grading.check("gradients keep their size on the way, as 16-bit floats need it", [=] {
    for (const double samples : {16.0, 4096.0, 65536.0})
      if (const double before = factors.before(samples, samples * 1.1);
          !(before > 0.5 && before < 1.5))
        throw Wrong(
            fmt::format("a rank with {} samples where {} are usual multiplies by {:.6g} before the "
                        "average: a float16 ends at 65,504, and at 6e-8",
                        samples, samples * 1.1, before));
  });
}

}  // namespace
}  // namespace weighting_exercise

const Exercise exercises::kWeighting = {
    .name = "weighting of unequal batches",
    .source = "distributed/ddp/weights.cpp",
    .blanks = {"double factor_before(", "double factor_after("},
    .task =
        R"(
A rank's loss is the mean over its w samples, and so is its gradient g. All ranks want the mean over all samples, Σ
w·g / Σ w; but all-reduce gives the plain average, Σ … / ranks, and nobody knows Σ w before the first bucket leaves:
the weights arrive at the end of the step.

So a rank multiplies its gradients by one factor before the average, from its own weight and the `usual` one, which
all ranks know; and all ranks multiply the average by another one once they know the sum of the weights. Where all
weigh what is usual both must be exactly 1.)",
    .grade = weighting_exercise::grade,
};

}  // namespace ringgrad::program
