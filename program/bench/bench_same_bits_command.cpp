// `ringgrad bench same-bits`: the cost of the same bits on any number of ranks. It measures steps
// of VirtualRanks against steps of DistributedDataParallel, or of the network alone in one process.
// They take turns in the same processes.
#include <algorithm>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {
namespace {

struct BenchSameBitsOptions {
  std::vector<std::string> models = {"cnn", "resnet20", "resnet18"};
  int64_t batch = 64;  // the batch of all ranks together
  int ranks = 2;       // with as many shards
  int shards = 4;      // only for one process
  double seconds = 4;  // for each network
};

using nlohmann::json;

constexpr double kBlockSeconds = 0.25;

struct Noise {
  Tensor images;
  Tensor labels;
};

// A network and its optimizer. With 0 `shards` it is plain, and on several ranks in
// DistributedDataParallel.
class Trained {
 public:
  Trained(const std::string& name, int shards, ProcessGroup& group) {
    manual_seed(0);
    model_ = models::make_model(name, models::usual_images(name));
    if (shards > 0)
      virtual_.emplace(*model_, group, VirtualRanksOptions{.shards = shards});
    else if (group.size() > 1)
      ddp_.emplace(*model_, group);
    optimizer_.emplace(model_->named_parameters(), optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
  }

  // Takes a step with the global batch, of which `own` has this rank's rows.
  void step(int64_t batch, const Noise& own) {
    if (virtual_) {
      virtual_->step(batch, [&](const VirtualRanks::Shard& shard) {
        const auto rows = [&](const Tensor& x) { return slice(x, 0, shard.begin, shard.end); };
        const Tensor sum = cross_entropy((*model_)(rows(own.images)), rows(own.labels),
                                         {.reduction = Reduction::Sum});
        sum.backward();
        return sum;
      });
    } else {
      optimizer_->zero_grad();
      cross_entropy(ddp_ ? (*ddp_)(own.images) : (*model_)(own.images), own.labels).backward();
    }
    optimizer_->step();
  }

 private:
  std::shared_ptr<nn::Module> model_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<VirtualRanks> virtual_;
  std::optional<optim::SGD> optimizer_;
};

Noise noise(const std::string& model, int64_t count) {
  const models::ModelOptions sizes = models::usual_images(model);
  std::vector<int64_t> labels(count);
  for (int64_t i = 0; i < count; ++i) labels[i] = i * 7 % sizes.num_classes;
  return {randn({count, sizes.in_channels, sizes.image_size, sizes.image_size}), tensor(labels)};
}

// Collective. Both take turns, so that whatever else happens on the machine happens to both.
json measure(const BenchSameBitsOptions& options, const std::string& model, int shards,
             ProcessGroup& group) {
  Trained plain(model, 0, group);
  Trained same_bits(model, shards, group);
  const int64_t batch = options.batch;
  const Noise own = noise(model, batch / group.size());
  const auto block = [&](Trained& trained, int64_t steps) {
    group.barrier().wait();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) trained.step(batch, own);
    group.barrier().wait();
    return seconds_since(start) / static_cast<double>(steps);
  };
  block(same_bits, 2);
  block(plain, 2);
  const double step = block(plain, 2);
  const auto at_least = [](double n, int64_t least) {
    return std::max(least, static_cast<int64_t>(n));
  };
  const int64_t steps = at_least(kBlockSeconds / step, 1);
  const Tensor agreed = tensor<int64_t>(
      {steps, at_least(options.seconds / (2 * step * static_cast<double>(steps)), 3)});
  group.broadcast(agreed, 0).wait();

  std::vector<double> of_plain;
  std::vector<double> of_same_bits;
  std::vector<double> ratios;
  for (int64_t pair = 0; pair < agreed.data<int64_t>()[1]; ++pair) {
    of_plain.push_back(block(plain, agreed.data<int64_t>()[0]));
    of_same_bits.push_back(block(same_bits, agreed.data<int64_t>()[0]));
    ratios.push_back(of_plain.back() / of_same_bits.back());
  }
  return {{"model", model},
          {"ranks", group.size()},
          {"shards", shards},
          {"batch", batch},
          {"plain_images_per_second", static_cast<double>(batch) / median(of_plain)},
          {"images_per_second", static_cast<double>(batch) / median(of_same_bits)},
          {"ratio", median(ratios)},
          {"ratio_quartiles", {quantile(ratios, 0.25), quantile(ratios, 0.75)}},
          {"pairs", ratios.size()}};
}

// Measures each network on the ranks of the group.
json measure_all(const BenchSameBitsOptions& options, int shards) {
  json rows = json::array();
  for (const std::string& model : options.models)
    rows.push_back(measure(options, model, shards, process_group()));
  return rows;
}

// Measures with a shard for each rank, in processes of their own: this program with the same
// arguments.
json measure_on_ranks(const BenchSameBitsOptions& options) {
  const TemporaryDirectory files("bench same-bits");
  const std::filesystem::path file = files.of("ranks");
  const int code = launch_or_throw(
      [] {}, {.num_processes = options.ranks, .environment = {{kFileVariable, file.string()}}});
  if (code != kOk) throw JobFailed(code, "bench same-bits: its ranks have failed");
  return json_from(text_of(file));
}

int measure_as_rank(const BenchSameBitsOptions& options) {
  return launch_or_throw([&] {
    const json rows = measure_all(options, process_group().size());
    if (!process_group().is_main_process()) return;
    std::ofstream file(variable(kFileVariable));
    file << rows << std::flush;
    if (!file) throw IoError("bench same-bits: cannot write " + variable(kFileVariable));
  });
}

int bench_same_bits(const BenchSameBitsOptions& options) {
  if (!rank_environment().source.empty()) return measure_as_rank(options);
  for (const std::string& model : options.models) recipe_field("model").check_choice(model);
  if (options.batch % options.ranks != 0 || options.batch < options.shards)
    throw UsageError(
        "bench same-bits: a batch of {} for {} ranks and {} shards, "
        "expected a multiple of the ranks, and an image for each shard",
        options.batch, options.ranks, options.shards);
  json rows = options.ranks > 1 ? measure_on_ranks(options) : json::array();
  launch_or_throw([&] {
    for (const json& row : measure_all(options, options.shards)) rows.push_back(row);
  });
  result("{:<12}{:>7}{:>8}{:>12}{:>12}   {}", "batch " + std::to_string(options.batch), "ranks",
         "shards", "plain img/s", "img/s", "as fast as plain (quartiles)");
  for (const json& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    result("{:<12}{:>7}{:>8}{:>12}{:>12}   {:.1f} % ({:.1f}–{:.1f})",
           row["model"].get<std::string>(), row["ranks"].get<int>(), row["shards"].get<int>(),
           with_commas(static_cast<int64_t>(number("plain_images_per_second"))),
           with_commas(static_cast<int64_t>(number("images_per_second"))), 100 * number("ratio"),
           100 * row["ratio_quartiles"][0].get<double>(),
           100 * row["ratio_quartiles"][1].get<double>());
  }
  message(
      "plain: DistributedDataParallel on ranks, the network alone in one process. "
      "Blocks of steps take turns.");
  print_json({{"rows", rows}});
  return kOk;
}

void add_options(CLI::App* app, BenchSameBitsOptions& o) {
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.models, "as for train; several: one after the other");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "ranks with one shard each; 1: only one process")
      ->check(CLI::Range(1, 64));
  app->add_option("--shards", o.shards, "shards in the row of one process")
      ->check(CLI::Range(1, kMaxShards));
  app->add_option("--seconds", o.seconds, "for each network and number of ranks")
      ->check(CLI::Range(0.01, 1000.0));
}

const Command kBenchSameBits(196, "bench same-bits",
                             "What --shards costs, against plain training, in turn",
                             bench_same_bits, add_options);

}  // namespace
}  // namespace ringgrad::program
