// The exercise on batch norm over the samples of all ranks.
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/ddp/batch_statistics.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace sync_batch_norm_exercise {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kPixels = 4;

StatisticsChannel channel_of(ProcessGroup& group) {
  return {std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group), {}};
}

// Returns value i of channel c of a sample. Channel 2 is far from zero, where Σ x² - (Σ x)² would
// lose all digits.
double value(int sample, int64_t c, int64_t i) {
  return std::sin(sample * 1.7 + static_cast<double>(c * 5 + i)) + (c == 2 ? 1e4 : 0);
}

// Computes means and mean squared deviations over all ranks' samples, in two passes.
std::vector<double> statistics_of(int samples) {
  std::vector<double> result(2 * kChannels);
  const double n = static_cast<double>(samples * kPixels);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int s = 0; s < samples; ++s)
      for (int64_t i = 0; i < kPixels; ++i) result[c] += value(s, c, i) / n;
    for (int s = 0; s < samples; ++s)
      for (int64_t i = 0; i < kPixels; ++i) {
        const double apart = value(s, c, i) - result[c];
        result[kChannels + c] += apart * apart / n;
      }
  }
  return result;
}

void check_statistics(decltype(&global_statistics) function, const std::vector<int>& samples,
                      DType dtype, double tolerance) {
  const auto ranks = static_cast<int>(samples.size());
  const auto answers = answers_of(
      run_forked_ranks(ranks, [&](std::unique_ptr<Transport> transport) -> nlohmann::json {
        HostProcessGroup group(std::move(transport), {.timeout = std::chrono::seconds(3)});
        const int first = std::accumulate(samples.begin(), samples.begin() + group.rank(), 0);
        const int own = samples[group.rank()];
        Tensor x = empty({own, kChannels, 2, 2}, {.dtype = DType::Float64});
        auto* at = x.data<double>();
        for (int s = first; s < first + own; ++s)
          for (int64_t c = 0; c < kChannels; ++c)
            for (int64_t i = 0; i < kPixels; ++i) *at++ = value(s, c, i);
        x = x.to(dtype);
        const BatchStatistics all = function(x, dtype, channel_of(group));
        return {{"mean", to_vector<double>(all.mean.to(DType::Float64))},
                {"var", to_vector<double>(all.var.to(DType::Float64))},
                {"count", all.count}};
      }));
  const int all = std::accumulate(samples.begin(), samples.end(), 0);
  const auto want = statistics_of(all);
  for (int r = 0; r < ranks; ++r) {
    if (const double count = answers[r]["count"]; count != static_cast<double>(all * kPixels))
      throw Wrong(
          fmt::format("ranks with {} samples of {} values per channel: count is {}, expected {}",
                      fmt::join(samples, ", "), kPixels, count, all * kPixels));
    for (int64_t c = 0; c < kChannels; ++c)
      for (const bool var : {false, true}) {
        const double got = answers[r][var ? "var" : "mean"][c];
        const double expected = want[var ? kChannels + c : c];
        if (!(std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected))))
          throw Wrong(fmt::format(
              "ranks with {} samples: on rank {} the {} of channel {} is {:.9g}, expected {:.9g}, "
              "that of all ranks' values",
              fmt::join(samples, ", "), r, var ? "variance" : "mean", c, got, expected));
      }
    if (answers[r] != answers[0])
      throw Wrong(fmt::format("ranks 0 and {} differ in their last bits", r));
  }
}

void check_sums(decltype(&sum_over_ranks) function, const std::vector<double>& units) {
  const auto ranks = static_cast<int>(units.size());
  const auto answers = answers_of(
      run_forked_ranks(ranks, [&](std::unique_ptr<Transport> transport) -> nlohmann::json {
        HostProcessGroup group(std::move(transport), {.timeout = std::chrono::seconds(3)});
        const double r = group.rank();
        const Tensor a = tensor<float>({static_cast<float>(r + 1), 10});
        const Tensor b = tensor<float>({static_cast<float>(r * r), -1});
        function(a, b, units[group.rank()], channel_of(group));
        return {{"a", to_vector<float>(a)}, {"b", to_vector<float>(b)}};
      }));
  std::vector<double> a(2);
  std::vector<double> b(2);
  for (int r = 0; r < ranks; ++r) {
    a[0] += units[r] * (r + 1);
    a[1] += units[r] * 10;
    b[0] += units[r] * r * r;
    b[1] -= units[r];
  }
  for (int r = 0; r < ranks; ++r)
    for (size_t i = 0; i < 2; ++i)
      for (const auto& [name, sums] : {std::pair("a", &a), std::pair("b", &b)}) {
        const double got = answers[r][name][i];
        const double want = (*sums)[i] / units[r];
        if (!(std::abs(got - want) <= 1e-5 * std::max(1.0, std::abs(want))))
          throw Wrong(
              fmt::format("ranks of units {}: rank {}'s {}[{}] is {:.6g}, expected {:.6g}: "
                          "Σ unit · {} over the ranks, by its own unit",
                          fmt::join(units, ", "), r, name, i, got, want, name));
      }
}

void grade(Grading& grading, const LearnersCode& code) {
  const auto statistics = code.instead_of(&global_statistics);
  const auto sums = code.instead_of(&sum_over_ranks);
  grading.check("two ranks with as many samples", [=] {
    check_statistics(statistics, {4, 4}, DType::Float64, 1e-9);
  });
  grading.check("one rank alone, and three with 1, 2 and 6 samples", [=] {
    check_statistics(statistics, {5}, DType::Float64, 1e-9);
    check_statistics(statistics, {1, 2, 6}, DType::Float64, 1e-9);
  });
  grading.check("in float32", [=] { check_statistics(statistics, {3, 1}, DType::Float32, 2e-3); });
  grading.check("backward's sums, of ranks that weigh the same", [=] { check_sums(sums, {1, 1}); });
  grading.check("backward's sums, of ranks that weigh 8, 2 and 1", [=] {
    check_sums(sums, {8, 2, 1});
  });
}

}  // namespace
}  // namespace sync_batch_norm_exercise

const Exercise exercises::kSyncBatchNorm = {
    .name = "sync batch norm",
    .source = "distributed/ddp/batch_statistics.cpp",
    .blanks = {"BatchStatistics global_statistics(", "void sum_over_ranks("},
    .task =
        R"(
Batch norm over all ranks' samples, as if one rank had them all. kernels::batch_norm_stats(mean, var, x) gives a
rank's own means and variances [C] (mean squared deviations, not divided by n-1). The variance of all is not the
mean of the variances: ranks' means lie apart, too, and ranks may have different numbers of samples. Chan, Golub &
LeVeque (1983): Σ n_r · (var_r + (mean_r - mean)²) / Σ n_r. Sums of squares of x itself lose all digits where the
mean is large.

One channel.gather() is enough; in float64, added in the order of ranks, so that all ranks have the same bits.

sum_over_ranks(): a and b become Σ unit · a and Σ unit · b over the ranks, divided by this rank's own unit. In one
all_reduce.

The contract stands in distributed/ddp/batch_statistics.h; channel.options go with every collective.)",
    .grade = sync_batch_norm_exercise::grade,
};

}  // namespace ringgrad::program
