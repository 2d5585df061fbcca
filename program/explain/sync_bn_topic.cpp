// `explain sync-bn`: batch norm over a rank's part of the batch, and batch norm over the whole
// batch.
#include <cmath>

#include <fmt/format.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::sync_bn_topic {
namespace {

// One channel. The ranks have different numbers of samples from different places, as small batches
// do.
const std::vector<std::vector<double>> kSamples = {{1, 2, 3, 6}, {7, 9}};

Tensor images(const std::vector<double>& values) {
  return tensor(values, Shape{static_cast<int64_t>(values.size()), 1, 1, 1});
}

// Normalises with momentum 1, so that the running statistics are what the layer has computed (the
// variance unbiased).
template <class Norm>
nlohmann::json normalised(const std::vector<double>& values, Norm norm) {
  const Tensor mean = zeros({1}, {.dtype = DType::Float64});
  const Tensor var = zeros({1}, {.dtype = DType::Float64});
  const Tensor y = norm(images(values), mean, var,
                        BatchNormOptions{.training = true, .momentum = 1, .eps = 1e-5});
  return {{"y", to_vector<double>(y)},
          {"mean", mean.item<double>()},
          {"unbiased_var", var.item<double>()}};
}

nlohmann::json plain(const std::vector<double>& values) {
  return normalised(values, [](const Tensor& x, const Tensor& mean, const Tensor& var,
                               const BatchNormOptions& options) {
    return batch_norm(x, {}, {}, mean, var, options);
  });
}

void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    const auto& own = kSamples[static_cast<size_t>(group.rank())];
    const auto sync = [&](const Tensor& x, const Tensor& mean, const Tensor& var,
                          const BatchNormOptions& options) {
      return sync_batch_norm(x, {}, {}, mean, var, options, group);
    };
    return nlohmann::json{{"plain", plain(own)}, {"sync", normalised(own, sync)}};
  });
}

std::string listed(const std::vector<double>& values, const char* separator, int digits) {
  std::string text;
  for (const double v : values)
    text += fmt::format("{}{:.{}f}", text.empty() ? "" : separator, v, digits);
  return text;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

void tell(Page& page, const ExplainOptions&) {
  const auto ranks = answers_of_ranks(page, "norms", 2);
  std::vector<double> all;
  for (const auto& own : kSamples) all.insert(all.end(), own.begin(), own.end());
  const nlohmann::json whole = plain(all);

  page.text(
      "Batch norm subtracts the batch's mean and divides by its standard deviation. "
      "With data parallelism a rank sees only its own part of the batch: "
      "the network that is trained depends on how many ranks there are. "
      "Here one channel, two ranks with four and two samples, and one process that has all six.");
  std::vector<Row> rows;
  const auto row = [&](const std::string& who, const std::vector<double>& x,
                       const nlohmann::json& result) {
    const std::vector<double> y = result["y"];
    rows.push_back({who, listed(x, " ", 0), fmt::format("{:.4f}", result["mean"].get<double>()),
                    listed(y, "  ", 2)});
  };
  row("one process", all, whole);
  for (size_t r = 0; r < ranks.size(); ++r)
    row(fmt::format("rank {}, plain", r), kSamples[r], ranks[r]["plain"]);
  for (size_t r = 0; r < ranks.size(); ++r)
    row(fmt::format("rank {}, sync", r), kSamples[r], ranks[r]["sync"]);
  page.table({"who", "x", "mean", "normalised"}, rows);

  std::vector<double> y_plain;
  std::vector<double> y_sync;
  for (const auto& rank : ranks)
    for (const auto& [kind, y] : {std::pair("plain", &y_plain), std::pair("sync", &y_sync)})
      for (const double v : rank[kind]["y"]) y->push_back(v);
  const double apart_plain = largest_difference(y_plain, whole["y"]);
  const double apart_sync = largest_difference(y_sync, whole["y"]);
  page.text(fmt::format(
      "Apart from the one process by at most {:.3g} without, and {:.1e} with synchronisation.",
      apart_plain, apart_sync));
  page.chart(
      {.name = "how far the ranks' values are from those of one process, at most",
       .lanes = {{"plain",
                  {{0, apart_plain, Span::Communicate}},
                  fmt::format("{:.3g}", apart_plain)},
                 {"sync", {{0, apart_sync, Span::Communicate}}, fmt::format("{:.1e}", apart_sync)}},
       .end = apart_plain,
       .key = {{Span::Communicate, "apart from the one process, at most"}},
       .unit = "apart"});
  page.text(fmt::format(
      "The ranks exchange mean, variance and count, 3 numbers a channel, and combine them (Chan, "
      "Golub & LeVeque 1983): the mean is Σ nᵣ·meanᵣ / Σ nᵣ, the variance Σ nᵣ·(varᵣ + (meanᵣ "
      "- mean)²) / Σ nᵣ. The mean of the means would be wrong as soon as ranks have different "
      "numbers of samples: {:.4f} instead of {:.4f}. Backward needs two more sums.",
      (ranks[0]["plain"]["mean"].get<double>() + ranks[1]["plain"]["mean"].get<double>()) / 2,
      ranks[0]["sync"]["mean"].get<double>()));
  page.text(
      "It costs two round trips a layer in every step, in the middle of forward and of backward, "
      "where nothing hides them: worth it where a rank has few samples. "
      "`train --sync-bn` turns it on.");
  page.facts["samples"] = kSamples;
  page.facts["whole"] = whole;
  page.facts["ranks"] = ranks;
  page.facts["apart"] = {{"plain", apart_plain}, {"sync", apart_sync}};
  page.read("distributed/ddp/batch_statistics.cpp", "BatchStatistics global_statistics(",
            "the exchange; below it sum_over_ranks() has what backward exchanges");
}

}  // namespace
}  // namespace ringgrad::program::sync_bn_topic

const ringgrad::program::Topic ringgrad::program::kSyncBn{
    "sync-bn", "batch norm over a rank's part of the batch, and over all of it",
    sync_bn_topic::tell, sync_bn_topic::on_rank};
