// `explain unused`: parameters that take no part in the loss, on one rank or on all.
#include <fmt/format.h>

#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::unused_topic {
namespace {

// One weight for each branch, and one that no branch uses; y = x · weight.
struct Branches : nn::Module {
  nn::Parameter left{register_parameter("left", scalar(1))},
      right{register_parameter("right", scalar(1))};
  nn::Parameter nobody{register_parameter("nobody", scalar(1))};
  bool goes_left = true;
  Tensor forward(const Tensor& x) override { return mul(x, goes_left ? left : right); }
};

void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    Branches network;
    network.goes_left = group.rank() == 0;
    DistributedDataParallel ddp(network, group);
    nlohmann::json steps = nlohmann::json::array();
    for (int step = 0; step < 3; ++step) {
      network.zero_grad();
      mean(ddp(full({2}, group.rank() == 0 ? 3.0 : 5.0))).backward();
      nlohmann::json grads;
      for (const auto& [name, parameter] : network.named_parameters())
        grads[name] =
            parameter.grad() ? nlohmann::json(parameter.grad().item<float>()) : nlohmann::json();
      steps.push_back(grads);
    }
    return nlohmann::json{{"steps", steps}, {"hash", ddp.check_identical()}};
  });
}

void tell(Page& page, const ExplainOptions&) {
  page.text(
      "Three weights. In the same step rank 0's loss is the mean of 3 · left, "
      "rank 1's that of 5 · right, and nobody uses the third. "
      "A bucket is launched when all of its gradients are complete; some of these never will be.");
  page.text(
      "PyTorch: RuntimeError \"Expected to have finished reduction in the prior iteration "
      "before starting a new one\", one step too late, unless find_unused_parameters=True, "
      "which walks the whole graph in every step.");
  page.section("Here, just now");
  const auto ranks = answers_of_ranks(page, "mistake", 2);
  std::vector<Row> rows;
  const auto& last = ranks[0]["steps"].back();
  const char* meant[][3] = {{"left", "3", "-"}, {"right", "-", "5"}, {"nobody", "-", "-"}};
  for (const auto& [name, on_0, on_1] : meant)
    rows.push_back({name, on_0, on_1,
                    last[name].is_null() ? "-" : fmt::format("{}", last[name].get<double>())});
  page.table({"weight", "rank 0's part", "rank 1's part", "averaged, on both"}, rows);
  page.text(
      fmt::format("{} steps, no flag, no error, the same gradients on both ranks ({}). "
                  "A rank that has not used a weight counts with zero: "
                  "(3 + 0) / 2 and (0 + 5) / 2, the gradient of the mean over all samples. "
                  "The bucket waits until backward is over, and leaves then.",
                  ranks[0]["steps"].size(),
                  ranks[0]["steps"] == ranks[1]["steps"] ? "compared" : "they differ!"));
  page.facts["ranks"] = ranks;
  page.facts["exit_code"] = 0;
  page.read("distributed/ddp/reducer.cpp", "void Reducer::finalize_backward(",
            "the end of backward: what has not been launched is launched here");
}

}  // namespace
}  // namespace ringgrad::program::unused_topic

const ringgrad::program::Topic ringgrad::program::kUnused{
    "unused", "weights that take no part in the loss", unused_topic::tell, unused_topic::on_rank};
