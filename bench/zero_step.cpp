// Training steps with ZeRO and without, in turn, for zero.py.
//
//   zero_step MODEL RANKS TRANSPORT BATCH STEPS ROUNDS
//
// Each rank has a network and an AdamW for each way: DDP, ZeRO-1, ZeRO-1 that waits for all
// parameters when a step ends, and ZeRO-2. A round takes STEPS steps of BATCH images a rank by each
// way; every second round turns the order around. It prints JSON: by way, each round's milliseconds
// for a step.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"

using namespace ringgrad;

namespace {

struct Way {
  Way(const std::string& name, const std::string& model, int zero, bool waits)
      : name(name), waits(waits) {
    manual_seed(1);
    net = models::make_model(model, models::usual_images(model));
    ddp.emplace(*net, process_group(), DistributedDataParallelOptions{.zero = zero});
    optimizer.emplace(ddp->named_parameters(), optim::AdamWOptions{.lr = 1e-3});
    if (zero > 0) optimizer->share(ddp->step_share());
  }

  double milliseconds(const Tensor& x, const Tensor& labels, int64_t steps) {
    process_group().barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < steps; ++step) {
      optimizer->zero_grad();
      cross_entropy((*ddp)(x), labels).backward();
      optimizer->step();
      for (const Tensor& parameter : net->parameters())
        if (waits) (void)parameter.raw_data();
    }
    process_group().barrier().wait();
    return 1e3 * seconds_since(begin) / static_cast<double>(steps);
  }

  const std::string name;
  const bool waits;
  std::shared_ptr<nn::Module> net;
  std::optional<DistributedDataParallel> ddp;
  std::optional<optim::AdamW> optimizer;
};

void train(const std::string& model, int64_t batch, int64_t steps, int64_t rounds) {
  std::vector<std::unique_ptr<Way>> ways;
  ways.push_back(std::make_unique<Way>("DDP", model, 0, false));
  ways.push_back(std::make_unique<Way>("ZeRO-1", model, 1, false));
  ways.push_back(std::make_unique<Way>("ZeRO-1 waits", model, 1, true));
  ways.push_back(std::make_unique<Way>("ZeRO-2", model, 2, false));
  const models::ModelOptions images = models::usual_images(model);
  manual_seed(2 + static_cast<uint64_t>(process_group().rank()));
  const Tensor x = randn({batch, images.in_channels, images.image_size, images.image_size});
  const Tensor labels = to(rand({batch}) * 9.99, DType::Int64);
  std::map<std::string, std::vector<double>> times;
  for (int64_t round = -1; round < rounds; ++round) {
    for (const auto& way : ways) {
      const double time = way->milliseconds(x, labels, round < 0 ? 2 : steps);
      if (round >= 0) times[way->name].push_back(time);
    }
    std::reverse(ways.begin(), ways.end());
  }
  std::map<std::string, uint64_t> bits;
  for (const auto& way : ways) bits[way->name] = way->ddp->check_identical();
  if (!process_group().is_main_process()) return;
  const nlohmann::ordered_json result = {{"step_ms", times}, {"bits", bits}};
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "zero_step MODEL RANKS TRANSPORT BATCH STEPS ROUNDS\n");
    return 2;
  }
  return launch(
      [&] { train(argv[1], std::stoll(argv[4]), std::stoll(argv[5]), std::stoll(argv[6])); },
      {.num_processes = std::stoi(argv[2]), .group = {.transport = argv[3]}});
}
