// Training steps of a network on noise: memory and time of a rank, for memory.py.
//
//   memory_step NETWORK float32|bfloat16 RANKS STEPS BATCH [recompute] [zero1|zero2]
//
// NETWORK is resnet18, resnet101 or transformer (10 million parameters). The batch is that of all
// ranks together. bfloat16: parameters of 16 bits with float32 copies. AdamW. It prints JSON.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/nn/recompute.h"

using namespace ringgrad;

namespace {

// 13 layers of 256 numbers, on sequences of 64.
class Transformer : public nn::Module {
 public:
  Transformer() : head_(256, 10) {
    for (int i = 0; i < 13; ++i)
      layers_.push_back(nn::TransformerEncoderLayer(256, 4,
                                                    {.dim_feedforward = 1024,
                                                     .dropout = 0,
                                                     .activation = nn::TransformerActivation::Gelu,
                                                     .batch_first = true,
                                                     .norm_first = true}));
    register_module("layers", layers_);
    register_module("head", head_);
  }
  Tensor forward(const Tensor& x) override { return head_(select(layers_(x), 1, 0)); }

 private:
  nn::Sequential layers_;
  nn::Linear head_;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

void train(const std::string& name, DType dtype, int64_t steps, int64_t all,
           const std::set<std::string>& ways) {
  ProcessGroup& group = process_group();
  manual_seed(1);
  std::shared_ptr<nn::Module> net;
  if (name == "transformer")
    net = std::make_shared<Transformer>();
  else
    net = models::make_model(name);
  net->to(dtype);
  const int zero = ways.contains("zero2") ? 2 : ways.contains("zero1") ? 1 : 0;
  std::optional<nn::Recomputation> recomputation;
  if (ways.contains("recompute")) recomputation.emplace(*net);
  DistributedDataParallel ddp(*net, group, {.zero = zero});
  const bool copies = dtype != DType::Float32;
  std::optional<optim::MasterWeights> masters;
  if (copies && zero == 0) masters.emplace(ddp.named_parameters());
  optim::AdamW optimizer(masters ? masters->parameters() : ddp.named_parameters(), {.lr = 1e-3});
  if (zero > 0 && copies)
    optimizer.share(std::make_shared<optim::MasterShare>(ddp.step_share(), ddp.named_parameters()));
  else if (zero > 0)
    optimizer.share(ddp.step_share());
  const int64_t batch = all / group.size();
  manual_seed(2 + static_cast<uint64_t>(group.rank()));
  const Tensor x =
      to(name == "transformer" ? randn({batch, 64, 256}) : randn({batch, 3, 32, 32}), dtype);
  const Tensor labels = to(rand({batch}) * 9.99, DType::Int64);
  std::vector<double> times;
  for (int64_t step = -2; step < steps; ++step) {
    if (step == 0) reset_peak_memory({});
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    masters ? masters->zero_grad() : optimizer.zero_grad();
    cross_entropy(to(ddp(x), DType::Float32), labels).backward();
    if (masters) masters->take_gradients();
    optimizer.step();
    if (masters) masters->publish();
    group.barrier().wait();
    if (step >= 0) times.push_back(milliseconds_since(begin));
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const uint64_t bits = ddp.check_identical();
  if (!group.is_main_process()) return;
  std::sort(times.begin(), times.end());
  const nlohmann::ordered_json result = {
      {"step_ms", times[times.size() / 2]},
      {"tensor_mb", static_cast<double>(memory_stats({}).peak_bytes) / 1e6},
      {"resident_mb", static_cast<double>(used.ru_maxrss) * 1.024e-3},
      {"bits", bits}};
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string dtype = argc >= 6 ? argv[2] : "";
  if (dtype != "float32" && dtype != "bfloat16") {
    fmt::print(stderr,
               "memory_step resnet18|resnet101|transformer float32|bfloat16 RANKS STEPS BATCH "
               "[recompute] [zero1|zero2]\n");
    return 2;
  }
  const std::set<std::string> ways(argv + 6, argv + argc);
  return launch(
      [&] {
        train(argv[1], dtype == "float32" ? DType::Float32 : DType::BFloat16, std::stoll(argv[4]),
              std::stoll(argv[5]), ways);
      },
      {.num_processes = std::stoi(argv[3])});
}
