// `explain buckets`: which gradients travel together, the order in which they are ready, and the
// effect of another size.

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::buckets_topic {
namespace {

constexpr int kLayers = 4;
constexpr int64_t kWidth = 64;
constexpr int64_t kSamples = 8;
constexpr int64_t kLayerBytes = 4 * (kWidth * kWidth + kWidth);
constexpr int64_t kCaps[] = {kLayerBytes / 2, kLayerBytes, 2 * kLayerBytes, 100 * kLayerBytes};

// Two steps with each cap: the second by the order that the first one has shown.
void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    nlohmann::json runs = nlohmann::json::array();
    for (const int64_t cap : kCaps) {
      manual_seed(0);
      Chain network(kLayers, kWidth);
      std::vector<std::string> ready;
      std::vector<HookHandle> hooks;
      DistributedDataParallel ddp(network, group, {.caps = {.first_bytes = cap, .bytes = cap}});
      for (const auto& [name, parameter] : network.named_parameters())
        hooks.push_back(register_post_accumulate_grad_hook(
            parameter, [&ready, name = name](const Tensor&) { ready.push_back(name); }));
      for (int step = 0; step < 2; ++step) {
        ready.clear();
        loss_on_noise(ddp, kSamples, kWidth, group.rank()).backward();
      }
      nlohmann::json run = log_as_json(ddp.log());
      run["cap"] = cap;
      run["ready"] = ready;
      run["plans"] = ddp.totals().plans;
      runs.push_back(run);
    }
    return runs;
  });
}

void tell(Page& page, const ExplainOptions&) {
  const nlohmann::json runs = answers_of_ranks(page, "caps", 2)[0];
  page.text(
      fmt::format("A network of {} linear layers of {} × {}, on two ranks: {} parameters, "
                  "{} of gradients a layer. To average each parameter by itself would cost a round "
                  "trip each; to wait for all of them would leave nothing to hide behind backward. "
                  "So gradients travel in buckets: ranges of one flat array, "
                  "in the order in which backward completes them.",
                  kLayers, kWidth, kWidth, 2 * kLayers, human_bytes(kLayerBytes)));

  page.section("The order in which the hooks fired");
  std::string order;
  for (const std::string name : runs[0]["ready"]) order += (order.empty() ? "" : " → ") + name;
  page.listing(order);
  page.text(
      fmt::format("The first step is planned by the order of registration reversed, "
                  "for lack of anything better, and then the observed order replaces it, "
                  "rank 0's on all ranks: plans made here: {}.",
                  runs[0]["plans"].get<int>()));

  for (const auto& run : runs) {
    const auto cap = run["cap"].get<int64_t>();
    page.section(fmt::format("At most {} in a bucket: {}", human_bytes(cap),
                             run["buckets"].size() == 1
                                 ? "one bucket"
                                 : fmt::format("{} buckets", run["buckets"].size())));
    std::vector<Row> rows;
    for (size_t b = 0; b < run["buckets"].size(); ++b) {
      const auto& bucket = run["buckets"][b];
      const auto ms = [&](const char* when) {
        return fmt::format("{:.2f}", bucket[when].get<double>());
      };
      rows.push_back({fmt::format("{}", b), human_bytes(bucket["bytes"]), ms("ready_ms"),
                      ms("launched_ms"), ms("completed_ms"), first_and_last(bucket["parameters"])});
    }
    page.table({"bucket", "size", "ready", "launched", "completed", "parameters"}, rows);
  }
  page.text(
      "Milliseconds since backward began, on rank 0. Small buckets begin to travel early, but "
      "each costs a message; with one bucket nothing travels before the last gradient is complete. "
      "A tensor that is larger than the cap is cut, where PyTorch lets the bucket grow. "
      "The last bucket is launched after backward: there is nothing left to hide it behind.");
  page.facts["runs"] = runs;
  page.facts["layer_bytes"] = kLayerBytes;
  page.read("distributed/buckets/bucket_plan.cpp", "std::vector<BucketRange> plan_buckets(",
            "how the array is cut; gradient_buckets.cpp beside it launches the buckets");
}

}  // namespace
}  // namespace ringgrad::program::buckets_topic

const ringgrad::program::Topic ringgrad::program::kBuckets{
    "buckets", "which gradients travel together, when they are ready, other sizes",
    buckets_topic::tell, buckets_topic::on_rank};
