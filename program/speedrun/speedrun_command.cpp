// `ringgrad train --preset speedrun`
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/models/speedrun.h"
#include "ringgrad/program/commands/train_options.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/build.h"
#include "ringgrad/program/run/machine.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/run/summary.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kTestBatch = 250;

// Field 22 of /proc/self/stat, in ticks since the machine started; the second field is a name, and
// may hold anything.
double seconds_since_process_start() {
  std::ifstream stat("/proc/self/stat");
  std::string text(std::istreambuf_iterator<char>(stat), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Refuses options that the recipe fixes, and takes no --model but its own. --no-report is accepted
// because there is no report.
Recipe recipe_of(const TrainOptions& o) {
  static const std::set<std::string> taken = {"--preset", "--data",   "--data-dir",
                                              "--model",  "--epochs", "--dtype",
                                              "--seed",   "--out",    "--no-report"};
  for (const std::set<std::string>* options : {&o.given, &o.named})
    for (const std::string& option : *options)
      if (!taken.contains(option))
        throw UsageError(
            "--preset speedrun is a recipe, and runs once, on one process: "
            "it takes --data, --data-dir, --epochs, --dtype, --seed and --out, not {}",
            option);
  Recipe recipe = o.recipe;
  if (recipe.dtype == "fp16")
    throw UsageError("--preset speedrun: --dtype fp16 would need a scaled loss; use bf16 or fp32");
  if (!o.given.contains("--data")) recipe.data = "mnist";
  if (is_own_data(recipe.data))
    throw UsageError("--preset speedrun knows its data sets, and {} is none", recipe.data);
  recipe_field("data").check_choice(recipe.data);
  const bool colour = facts_of_dataset(recipe.data).channels == 3;
  const std::string network = colour ? "airbench" : "quick";
  if (o.given.contains("--model") && recipe.model != network)
    throw UsageError("--preset speedrun trains {} on {}, not {}; leave --model out", network,
                     recipe.data, recipe.model);
  recipe.model = network;
  if (!o.given.contains("--epochs")) recipe.epochs = colour ? 8 : 1;
  if (const auto range = recipe_field("epochs").range;
      static_cast<double>(recipe.epochs) < range.low ||
      static_cast<double>(recipe.epochs) > range.high)
    throw UsageError("--epochs is {}, expected {} to {}", recipe.epochs, range.low, range.high);
  return recipe;
}

struct Tested {
  double accuracy = 0;
  double loss = 0;
};

Tested test(const ImageDataset& test_set, const ImageTransform& normalize, DType dtype,
            const std::function<Tensor(const Tensor& images)>& answer_of) {
  DataLoader loader(test_set, std::make_shared<SequentialSampler>(test_set.size()),
                    {.batch_size = kTestBatch, .num_workers = 1, .transform = normalize});
  Tested sums;
  for (const Batch& batch : loader) {
    const Tensor answer = answer_of(to(batch.data, dtype));
    sums.accuracy += static_cast<double>(
        sum(to(eq(argmax(answer, 1), batch.target), DType::Int64)).item<int64_t>());
    sums.loss += cross_entropy(answer, batch.target, {.reduction = Reduction::Sum}).item<float>();
  }
  const auto images = static_cast<double>(test_set.size());
  return {sums.accuracy / images, sums.loss / images};
}

// Steps and their losses, as they come.
struct Taken {
  int64_t steps = 0;
  int64_t per_epoch = 0;
  // of the last step, and of all of the last epoch
  double loss = 0;
  double sum = 0;
};

// Returns the summary that `runs`, `report` and `compare` read. Its steps are not measured one by
// one.
RunSummary summary_of(const ImageDataset& train_set, const Taken& taken, double train_seconds,
                      double test_seconds) {
  RunSummary summary;
  summary.steps_per_epoch = taken.per_epoch;
  summary.train_seconds = train_seconds;
  summary.test_seconds = test_seconds;
  summary.cores = static_cast<int>(std::thread::hardware_concurrency());
  summary.threads = cpu_cores();
  summary.workers = 1;
  summary.memory_limit = memory_limit();
  summary.classes = train_set.classes;
  summary.command = command_line();
  summary.machine = machine_name();
  summary.commit = build_commit();
  summary.version = RINGGRAD_VERSION;
  return summary;
}

int run_into(const RunDirectory& run, const RunConfig& config) {
  const Recipe& recipe = config.recipe;
  const ImageDataset train_set = load_dataset(recipe.data, Split::Train, config.data_dir);
  const ImageTransform normalize = normalization_of(config.facts);
  const DType dtype = dtype_named(recipe.dtype);
  manual_seed(config.seed);
  const std::shared_ptr<nn::Module> network = make_model_for(recipe.model, config.facts);
  const double loaded = seconds_since_process_start();

  message("speedrun {} on {} · {} · seed {}", recipe.model, recipe.data, recipe.dtype, config.seed);
  std::optional<Progress> progress;
  Taken taken;
  const models::AfterStep told = [&](int64_t step, int64_t steps, double loss) {
    if (!progress) progress.emplace("train", steps);
    progress->update(step, [&] { return fmt::format("loss {:.3f}", loss); });
    const int64_t per_epoch = steps / recipe.epochs;
    taken = {step, per_epoch, loss, (step - 1) % per_epoch == 0 ? loss : taken.sum + loss};
    CHECK(std::isfinite(loss), "speedrun: the loss of step ", step,
          " is not finite: the run diverged");
    return interrupted() == 0;
  };
  const models::SpeedrunOptions asked{.epochs = recipe.epochs, .seed = config.seed, .dtype = dtype};
  std::function<Tensor(const Tensor&)> answer = [&](const Tensor& images) {
    return models::answer(*network, images);
  };
  const auto train = [&](auto& known, bool by_views) {
    if (by_views)
      answer = [&known](const Tensor& images) { return models::answer_by_views(known, images); };
    return models::speedrun(known, train_set, normalize, asked, told);
  };
  auto* const airbench = dynamic_cast<models::Airbench*>(network.get());
  const bool whole = airbench != nullptr
                         ? train(*airbench, true)
                         : train(dynamic_cast<models::QuickNet&>(*network), recipe.epochs > 1);
  progress.reset();
  if (!whole) return 128 + interrupted();
  const double trained = seconds_since_process_start();
  const ImageDataset test_set = load_dataset(recipe.data, Split::Test, config.data_dir);
  const Tested tested = test(test_set, normalize, dtype, answer);
  const double seconds = seconds_since_process_start();

  const int64_t batch = airbench != nullptr ? models::kAirbenchBatch : models::kQuickNetBatch;
  const double images = static_cast<double>(taken.steps * batch);
  run.append_metrics({{"epoch", recipe.epochs},
                      {"step", taken.steps},
                      {"loss", taken.sum / static_cast<double>(taken.per_epoch)},
                      {"test_accuracy", tested.accuracy},
                      {"test_loss", tested.loss},
                      {"images_per_second", images / (trained - loaded)},
                      {"seconds", trained - loaded}});
  save_model(run.model(), *network, recipe, config.facts);
  write_summary(run.path(), summary_of(train_set, taken, trained - loaded, seconds - trained));
  news(
      "{:.2f} % of the test images after {:.2f} s from the process' start: "
      "{:.2f} s until training began, {:.2f} s of training, {:.2f} s of testing",
      100 * tested.accuracy, seconds, loaded, trained - loaded, seconds - trained);
  print_json({{"preset", "speedrun"},
              {"model", recipe.model},
              {"data", recipe.data},
              {"dtype", recipe.dtype},
              {"epochs", recipe.epochs},
              {"seed", config.seed},
              {"test_accuracy", tested.accuracy},
              {"train_loss", taken.loss},
              {"seconds_from_start", seconds},
              {"seconds_of_training", trained - loaded},
              {"parameters_sha256", sha256_of_state(*network)},
              {"run", run.path().string()}});
  return kOk;
}

// As fast as we can to a known accuracy, on one process (models/speedrun.h).
int speedrun(const TrainOptions& options) {
  RunConfig config{
      recipe_of(options), data_directory(options.data_dir), options.seed.value_or(1), {}};
  config.facts = facts_of_dataset(config.recipe.data);
  config.data_dir = std::filesystem::absolute(config.data_dir).lexically_normal();
  // Impossible settings are reported before a directory is made.
  (void)dtype_named(config.recipe.dtype);
  catch_interrupts("note    a speedrun cannot be continued: nothing of it is kept");
  config.preset = "speedrun";
  const RunDirectory run =
      RunDirectory::create(options.out, config.recipe.data + "-speedrun", to_json(config));
  try {
    const int code = run_into(run, config);
    if (code != kOk) run.discard();
    return code;
  } catch (const std::exception& error) {
    run.note_failure(error.what());
    run.discard();
    throw;
  }
}

const auto kPreset = presets().insert(
    presets().end(), {"speedrun",
                      "to 99 % on mnist, or airbench's mark on cifar10, as fast as we can; "
                      "takes --data, --seed, --epochs, --dtype, --out",
                      speedrun});

}  // namespace
}  // namespace ringgrad::program
