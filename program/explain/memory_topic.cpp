// `explain memory`: the memory of a training step, predicted from shapes before it and read from
// the allocator after it.
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::memory_topic {
namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kFloat = 4;
constexpr int64_t kTarget = 8;
constexpr int64_t kIndex = 4;

int64_t live() { return memory_stats({}).live_bytes; }

// Two convolutions and a linear layer. `measured` sees how much memory each step of forward has
// left behind.
struct Net : nn::Module {
  nn::Conv2d conv1{16, 32, 3, {.padding = 1}};
  nn::Conv2d conv2{32, 32, 3, {.padding = 1}};
  nn::Linear fc{32 * 8 * 8, 10};
  nlohmann::json measured;

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    measured = nlohmann::json::array();
    Tensor y = x;
    const auto then = [&](const char* what, const std::function<Tensor()>& layer) {
      const int64_t before = live();
      y = layer();
      const auto& shape = y.shape();
      measured.push_back({{"what", what},
                          {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                          {"bytes", live() - before}});
    };
    then("conv1", [&] { return conv1(y); });
    then("relu", [&] { return relu(y); });
    then("max_pool", [&] { return max_pool2d(y, {.kernel = 2}); });
    then("conv2", [&] { return conv2(y); });
    then("relu", [&] { return relu(y); });
    then("fc", [&] { return fc(flatten(y, 1)); });
    return y;
  }
};

void on_rank(const std::string&) {
  InitOptions options;
  options.transport = "tcp";  // else gradients lie in shared memory, which no process's account has
  play(
      [](ProcessGroup& group) {
        nlohmann::json answer;
        const auto measure = [&](const char* what, const std::function<void()>& act) {
          const int64_t before = live();
          act();
          answer[what] = live() - before;
        };
        std::unique_ptr<Net> net;
        std::unique_ptr<DistributedDataParallel> ddp;
        std::unique_ptr<optim::SGD> optimizer;
        measure("parameters", [&] { net = std::make_unique<Net>(); });
        measure("gradients", [&] { ddp = std::make_unique<DistributedDataParallel>(*net, group); });
        Tensor x;
        Tensor target;
        Tensor loss;
        measure("batch", [&] {
          x = zeros({kBatch, 16, 16, 16});
          target = zeros({kBatch}, {.dtype = DType::Int64});
        });
        measure("optimizer", [&] {
          optimizer = std::make_unique<optim::SGD>(ddp->named_parameters(),
                                                   optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
        });
        // The first steps tune, and allocate what is then kept.
        for (int step = 0; step < 3; ++step) {
          loss = {};
          measure("activations", [&] { loss = cross_entropy((*ddp)(x), target); });
          measure("freed by backward", [&] { loss.backward(); });
          measure("optimizer's step", [&] { optimizer->step(); });
          if (step == 0)
            answer["optimizer"] =
                answer["optimizer"].get<int64_t>() + answer["optimizer's step"].get<int64_t>();
        }
        answer["layers"] = net->measured;
        answer["buckets are the gradients' memory"] =
            net->conv1.parameters()[0].grad().shares_memory_with(net->fc.parameters()[0].grad());
        answer["peak"] = memory_stats({}).peak_bytes;
        return answer;
      },
      options);
}

void tell(Page& page, const ExplainOptions&) {
  Net net;
  const int64_t parameters = net.num_parameters() * kFloat;
  page.text(
      fmt::format("conv 16→32, relu, pool, conv 32→32, relu, linear 2048→10; "
                  "{} images of 16 × 16 × 16 on each of two ranks; SGD with momentum. "
                  "What a step will hold follows from the shapes: float32 has 4 bytes, "
                  "and max_pool keeps where each maximum was, an int32. Then rank 0 runs it, "
                  "and asks its allocator. (Blocks are rounded up; the ring is over TCP, "
                  "because gradients that ranks share belong to no process's account.)",
                  kBatch));
  const auto rank = answers_of_ranks(page, "step", 2)[0];

  std::vector<Row> rows;
  const auto row = [&](const std::string& what, int64_t predicted, int64_t measured,
                       const char* why) {
    rows.push_back({what, with_commas(predicted), with_commas(measured), why});
    page.facts["rows"].push_back(
        {{"what", what}, {"predicted", predicted}, {"measured", measured}});
  };
  row("parameters", parameters, rank["parameters"], "");
  row("gradients", parameters, rank["gradients"], "one array, as the parameters");
  row("buckets", 0, rank["buckets are the gradients' memory"].get<bool>() ? 0 : parameters,
      "ranges of that array");
  row("momentum", parameters, rank["optimizer"], "made in the first step");
  row("batch", kBatch * (16 * 16 * 16 * kFloat + kTarget), rank["batch"], "");
  page.section("Before the step");
  page.table({"what", "predicted", "measured", ""}, rows);

  page.section("Forward: what each layer leaves for backward");
  rows.clear();
  std::vector<Lane> bars;
  int64_t most = 1;
  int64_t input = kBatch * 16 * 16 * 16;
  for (const auto& layer : rank["layers"]) {
    int64_t output = 1;
    for (const int64_t size : layer["shape"]) output *= size;
    const std::string what = layer["what"];
    const int64_t measured = layer["bytes"];
    if (what == "relu")
      row(what, 0, measured, "takes its input's place");
    else if (what == "max_pool")
      row(what, output * (kFloat + kIndex), measured, "its output, and indices");
    else if (what == "conv2")
      row(what, output * kFloat, measured, "its output");
    else  // their inputs come in another order in memory than they need
      row(what, (output + input) * kFloat, measured, "its output, its input reordered");
    input = output;
    bars.push_back({layer["what"], {{0, static_cast<double>(measured)}}, human_bytes(measured)});
    most = std::max(most, measured);
  }
  page.table({"layer", "predicted", "measured", "is"}, rows);
  page.chart({.name = "bytes that each layer leaves for backward",
              .lanes = bars,
              .end = static_cast<double>(most),
              .key = {{Span::Compute, "left for backward"}},
              .unit = "bytes"});
  page.text(fmt::format(
      "Backward frees each layer's as soon as it has used it, from the last layer on: "
      "{} were given back by the end. The peak was {}.",
      human_bytes(-rank["freed by backward"].get<int64_t>()), human_bytes(rank["peak"])));
  page.text(
      "Activations grow with the batch, everything else with the network: "
      "halving the batch, or bfloat16, halves the former.");
  page.facts["num_parameters"] = net.num_parameters();
  page.facts["rank"] = rank;
  page.read("autograd/arena.h", "void flatten_parameters(",
            "why parameters and gradients are views of two flat arrays");
}

}  // namespace
}  // namespace ringgrad::program::memory_topic

const ringgrad::program::Topic ringgrad::program::kMemory{
    "memory", "what a training step holds: predicted, then measured", memory_topic::tell,
    memory_topic::on_rank};
