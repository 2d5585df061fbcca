// `explain straggler`: one layer of one rank is slow, and all ranks seem to be.
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::straggler_topic {
namespace {

constexpr int kLayers = 6;
constexpr int kSlowLayer = 3;
constexpr int64_t kWidth = 64;
constexpr std::chrono::milliseconds kDelay{150};

// Its third layer's backward begins late, on one rank.
class Slowed : public Chain {
 public:
  explicit Slowed(bool slow) : Chain(kLayers, kWidth), slow_(slow) {}

 protected:
  Tensor after_layer(size_t layer, const Tensor& y) override {
    if (!slow_ || layer + 1 != kSlowLayer) return y;
    return differentiable("slow", {y}, y.detach(), [](const Tensor& dy) -> Gradients {
      std::this_thread::sleep_for(kDelay);
      return {dy};
    });
  }

 private:
  const bool slow_;
};

void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    Slowed network(group.rank() == 1);
    constexpr int64_t kLayerBytes = 4 * kWidth * (kWidth + 1);
    DistributedDataParallel ddp(network, group,
                                {.caps = {.first_bytes = kLayerBytes, .bytes = kLayerBytes}});
    for (int step = 0; step < 3; ++step) loss_on_noise(ddp, 32, kWidth, group.rank()).backward();
    return log_as_json(ddp.log());
  });
}

void tell(Page& page, const ExplainOptions&) {
  const auto ranks = answers_of_ranks(page, "step", 2);
  page.text(
      fmt::format("Six layers, each of them a bucket. On rank 1 the backward of fc{} takes "
                  "{} ms longer: a core that is throttled, a page that was swapped out, "
                  "a kernel that fell back. Every step takes as long as the slowest rank, "
                  "and a clock around the step shows the same on both.",
                  kSlowLayer, kDelay.count()));
  page.text(
      "PyTorch: nothing. Both ranks take equally long, the fast one inside the all-reduce; "
      "a profiler shows communication.");
  page.section("Here, just now");
  std::vector<Row> rows;
  double jump = 0;
  double before = 0;
  size_t culprit = 0;
  const auto& on_0 = ranks[0]["buckets"];
  const auto& on_1 = ranks[1]["buckets"];
  const auto ms = [](const nlohmann::json& bucket, const char* when) {
    return bucket[when].get<double>();
  };
  for (size_t b = 0; b < on_0.size(); ++b) {
    const double later = ms(on_1[b], "ready_ms") - ms(on_0[b], "ready_ms");
    if (std::abs(later - before) > std::abs(jump)) {
      jump = later - before;
      culprit = b;
    }
    before = later;
    rows.push_back(
        {on_0[b]["parameters"].get<std::string>(), fmt::format("{:.1f}", ms(on_0[b], "ready_ms")),
         fmt::format("{:.1f}", ms(on_1[b], "ready_ms")), fmt::format("{:+.1f}", later),
         fmt::format("{:.1f}", ms(on_0[b], "completed_ms") - ms(on_0[b], "launched_ms")),
         fmt::format("{:.1f}", ms(on_1[b], "completed_ms") - ms(on_1[b], "launched_ms"))});
  }
  page.table({"bucket", "ready: 0", "1", "later", "under way: 0", "1"}, rows);
  std::vector<Lane> lanes;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<Span> waits;
    double until = 0;
    for (const auto& bucket : ranks[r]["buckets"]) {
      waits.push_back({std::max(until, ms(bucket, "launched_ms")), ms(bucket, "completed_ms"),
                       Span::Communicate});
      until = std::max(until, ms(bucket, "completed_ms"));
    }
    lanes.push_back({fmt::format("rank {} backward", r), {{0, ms(ranks[r], "backward_ms")}}, ""});
    lanes.push_back({"buckets", waits, ""});
  }
  page.chart({.name = "backward and the buckets of both ranks",
              .lanes = lanes,
              .end = std::max(ms(ranks[0], "averaged_ms"), ms(ranks[1], "averaged_ms")),
              .key = {{Span::Compute, "backward"}, {Span::Communicate, "a bucket under way"}},
              .unit = "ms"});
  const std::string parameters = on_0[culprit]["parameters"];
  const int slow = jump > 0 ? 1 : 0;
  page.text(
      fmt::format("Milliseconds since each rank's backward began. Ready times are computation "
                  "alone: before bucket {} both ranks are level, from there on rank {} is {:.0f} "
                  "ms behind. So rank {} is slow, in the layer of {}. That rank {}'s buckets are "
                  "under way for long is its consequence: a slow network would show on both ranks.",
                  culprit, slow, std::abs(jump), slow, parameters, 1 - slow));
  page.facts["slow"] = {{"rank", slow}, {"parameters", parameters}, {"ms", std::abs(jump)}};
  page.facts["planted"] = {{"layer", kSlowLayer}, {"ms", kDelay.count()}};
  page.facts["ranks"] = ranks;
  page.facts["exit_code"] = 0;
  page.read("distributed/ddp/reducer_options.h", "struct BucketLog",
            "what every rank notes of every bucket, and what the differences tell");
}

}  // namespace
}  // namespace ringgrad::program::straggler_topic

const ringgrad::program::Topic ringgrad::program::kStraggler{
    "straggler", "one layer of one rank is slow, and all ranks seem to be", straggler_topic::tell,
    straggler_topic::on_rank};
