// `explain overlap`: one step of two ranks as a timeline, with buckets that travel during backward
// and with such that wait.
#include <algorithm>

#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::overlap_topic {
namespace {

constexpr int kLayers = 6;
constexpr int kSteps = 15;
constexpr int64_t kWidth = 512;
constexpr int64_t kSamples = 256;
constexpr int64_t kCap = 4 * kWidth * (kWidth + 1);  // a layer

// Takes several steps in each way, and keeps the one whose time from the first gradient to the
// averaged ones is the median. The ways take turns, so that other load on the machine affects both.
void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    std::vector<nlohmann::json> steps[2];
    Chain networks[2] = {{kLayers, kWidth}, {kLayers, kWidth}};
    std::vector<std::unique_ptr<DistributedDataParallel>> ways;
    for (int way = 0; way < 2; ++way)
      ways.push_back(std::make_unique<DistributedDataParallel>(
          networks[way], group,
          DistributedDataParallelOptions{.caps = {.first_bytes = kCap, .bytes = kCap},
                                         .overlap = way == 0}));
    for (int step = 0; step < kSteps; ++step)
      for (int way = 0; way < 2; ++way) {
        loss_on_noise(*ways[way], kSamples, kWidth, group.rank()).backward();
        // The first two steps plan and tune.
        if (step >= 2) steps[way].push_back(log_as_json(ways[way]->log()));
      }
    nlohmann::json all = {{"with", steps[0]}, {"without", steps[1]}};
    return all;
  });
}

// The step that is the middle one by rank 0's time.
size_t middle(const nlohmann::json& steps) {
  std::vector<size_t> order(steps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return steps[a]["averaged_ms"] < steps[b]["averaged_ms"]; });
  return order[order.size() / 2];
}

void tell(Page& page, const ExplainOptions&) {
  const auto ranks = answers_of_ranks(page, "steps", 2);
  page.text(fmt::format(
      "Two ranks train {} linear layers of {} × {}, {} of gradients each, and every layer is a "
      "bucket. Below is the median of {} steps each way, from the moment when backward begins. "
      "A bucket's all-reduce includes waiting for the other rank.",
      kLayers, kWidth, kWidth, human_bytes(kCap), kSteps - 2));
  double end = 0;
  for (const char* way : {"with", "without"})
    for (const auto& rank : ranks)
      end = std::max(end, rank[way][middle(ranks[0][way])]["averaged_ms"].get<double>());
  for (const char* way : {"with", "without"}) {
    const size_t shown = middle(ranks[0][way]);
    page.section(way == std::string("with") ? "With overlap: a bucket leaves when it is full"
                                            : "Without: all buckets leave after backward");
    std::vector<Lane> lanes;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto& step = ranks[r][way][shown];
      lanes.push_back({fmt::format("rank {} backward", r),
                       {{0, step["backward_ms"], Span::Compute}},
                       fmt::format("{:.1f} ms", step["backward_ms"].get<double>())});
      for (size_t b = 0; b < step["buckets"].size(); ++b) {
        const auto& bucket = step["buckets"][b];
        lanes.push_back({fmt::format("bucket {}", b),
                         {{bucket["ready_ms"], bucket["launched_ms"], Span::Wait},
                          {bucket["launched_ms"], bucket["completed_ms"], Span::Communicate}}});
      }
    }
    page.chart({.name = std::string("a step ") + way + " overlap",
                .lanes = lanes,
                .end = end,
                .key = {{Span::Compute, "backward"},
                        {Span::Communicate, "a bucket's all-reduce"},
                        {Span::Wait, "ready, but held back"}},
                .unit = "ms"});
    const auto ms = [&, step = ranks[0][way][shown]](const char* what) {
      return step[what].get<double>();
    };
    page.text(fmt::format(
        "Rank 0: backward took {:.2f} ms, and the gradients were averaged {:.2f} ms after it. "
        "Of {:.2f} ms of communication backward hid {:.2f} ms, {:.0f} %.",
        ms("backward_ms"), ms("averaged_ms") - ms("backward_ms"), ms("communication_ms"),
        ms("hidden_ms"), 100 * ms("hidden_ms") / ms("communication_ms")));
    page.facts[way] = ranks[0][way][shown];
  }
  page.text(
      "What is hidden is not free where ranks share cores: "
      "an all-reduce in shared memory is additions, which take a core's time from backward. "
      "On GPUs, or between machines, the network card does the work.");
  page.read(
      "distributed/buckets/gradient_buckets.cpp", "void GradientBuckets::launch_ready(",
      "called from a parameter's hook, in the middle of backward: there a full bucket leaves");
}

}  // namespace
}  // namespace ringgrad::program::overlap_topic

const ringgrad::program::Topic ringgrad::program::kOverlap{
    "overlap", "one measured step as a timeline, with and without overlap", overlap_topic::tell,
    overlap_topic::on_rank};
