// `ringgrad train`
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/registry.h"
#include "models/program/commands.h"
#include "models/program/console.h"
#include "models/program/data_directory.h"
#include "models/program/exit_code.h"
#include "models/program/interrupt.h"
#include "models/program/run_directory.h"
#include "models/program/saved_model.h"
#include "models/program/training.h"

namespace ringgrad::program {
namespace {

using Clock = std::chrono::steady_clock;

// What is fixed for the whole life of a run, over any number of resumptions: its config.json.
struct RunConfig {
  Recipe recipe;
  std::string data_dir;
  uint64_t seed = 1;
};

nlohmann::json to_json(const RunConfig& config) {
  return {{"version", RINGGRAD_VERSION},
          {"recipe", to_json(config.recipe)},
          {"data_dir", config.data_dir},
          {"seed", config.seed}};
}

RunConfig config_of(const RunDirectory& run) {
  const nlohmann::json json = run.read_config();
  try {
    return {recipe_from_json(json.at("recipe")), json.at("data_dir"), json.at("seed")};
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("run: {}/config.json lacks what a run needs: {}", run.path().string(), error.what()));
  }
}

void check_options(const TrainOptions& o) {
  const bool sets_recipe = !o.model.empty() || o.epochs || o.batch || o.lr || o.momentum || o.weight_decay ||
                           o.label_smoothing || o.warmup || o.clip_norm || o.optimizer || o.schedule || o.crop ||
                           o.cutout || o.flip || o.nesterov || !o.out.empty();
  if (!o.resume.empty() && sets_recipe)
    throw UsageError("--resume takes model, recipe and directory from the run; leave those options out");
  if (o.dtype != "fp32") throw UsageError(fmt::format("--dtype is '{}', expected fp32", o.dtype));
  check_device("train", Device(o.device));
}

// What this call has done; a resumed run counts anew.
struct Tally {
  int64_t steps = 0, images = 0;
  double seconds = 0;  // of training, without evaluation
  double images_per_second() const { return seconds > 0 ? static_cast<double>(images) / seconds : 0; }
};

void print_header(const RunConfig& config, const TrainOptions& options, Training& training,
                  const ImageDataset& train_set, const ImageDataset& test_set) {
  const auto& shape = train_set.images.shape();
  message(fmt::format("{} · {}, {} threads · seed {}", bold("ringgrad " RINGGRAD_VERSION), options.device, cpu_cores(),
                      config.seed));
  message(fmt::format("data    {} {} train / {} test, {}×{}×{}", config.recipe.data, with_commas(train_set.size()),
                      with_commas(test_set.size()), shape[2], shape[3], shape[1]));
  message(fmt::format("model   {} {} parameters", config.recipe.model, with_commas(training.model().num_parameters())));
  message(fmt::format("recipe  {} · batch {} · {} steps × {} epochs", summary(config.recipe), config.recipe.batch,
                      training.steps_per_epoch(), config.recipe.epochs));
}

void report_epoch(const RunDirectory& run, const Training& training, const Evaluation& test, double images_per_second,
                  double seconds) {
  result(fmt::format("epoch={} step={} loss={:.4f} test_acc={:.4f} test_loss={:.4f} img_s={:.0f} sec={:.2f}",
                     training.epoch(), training.step(), training.mean_loss(), test.accuracy(), test.loss,
                     images_per_second, seconds));
  run.append_metrics({{"epoch", training.epoch()},
                      {"step", training.step()},
                      {"loss", training.mean_loss()},
                      {"test_accuracy", test.accuracy()},
                      {"test_loss", test.loss},
                      {"images_per_second", images_per_second},
                      {"seconds", seconds}});
}

int stopped_by_signal(const RunDirectory& run, const Training& training) {
  result(fmt::format("stopped at step {} · resume: ringgrad train --resume {}", training.step(), run.path().string()));
  return 128 + interrupted();
}

}  // namespace

int train(const TrainOptions& options) {
  check_options(options);
  const bool resuming = !options.resume.empty();
  std::optional<RunDirectory> run;
  if (resuming) run = RunDirectory::open(options.resume);
  const RunConfig config =
      resuming ? config_of(*run) : RunConfig{make_recipe(options), data_directory(options.data_dir), options.seed};

  const ImageDataset train_set = load_dataset(config.recipe.data, Split::Train, config.data_dir);
  const ImageDataset test_set = load_dataset(config.recipe.data, Split::Test, config.data_dir);
  const Device device(options.device);
  Training training(config.recipe, train_set, device, config.seed, options.workers);
  if (resuming) {
    training.load(run->checkpoint());
  } else {
    run = RunDirectory::create(options.out, config.recipe.data + "-" + config.recipe.model);
    run->write_config(to_json(config));
  }
  print_header(config, options, training, train_set, test_set);
  catch_interrupts();

  Tally tally;
  std::optional<Evaluation> test;  // of the weights as they stand
  bool stop = false;
  while (training.epoch() < config.recipe.epochs && !stop) {
    Progress progress(fmt::format("{:5}", training.epoch() + 1), training.steps_per_epoch());
    const auto start = Clock::now();
    const int64_t images_before = training.at_epoch_end() ? 0 : training.images();
    test.reset();
    training.run_epoch([&] {
      ++tally.steps;
      const int64_t done = (training.step() - 1) % training.steps_per_epoch() + 1;
      progress.update(done, [&] { return fmt::format("loss {:.3f}", training.mean_loss()); });
      if (options.save_every > 0 && training.step() % options.save_every == 0) training.save(run->checkpoint());
      stop = interrupted() || (options.max_steps > 0 && tally.steps >= options.max_steps);
      return stop;
    });
    progress.clear();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const int64_t images = training.images() - images_before;
    tally.seconds += seconds;
    tally.images += images;

    training.save(run->checkpoint());
    if (interrupted()) return stopped_by_signal(*run, training);
    if (training.at_epoch_end()) {
      test = evaluate(training.model(), test_set, test_transform(config.recipe.data), device);
      report_epoch(*run, training, *test, static_cast<double>(images) / seconds, seconds);
    }
  }
  if (!test) test = evaluate(training.model(), test_set, test_transform(config.recipe.data), device);
  save_model(run->model(), training.model(), config.recipe);

  result(fmt::format("done    {:.2f} % test accuracy, loss {:.4f} · {} steps in {} · {} img/s", 100 * test->accuracy(),
                     test->loss, tally.steps, human_time(tally.seconds),
                     with_commas(static_cast<int64_t>(tally.images_per_second()))));
  result(fmt::format("saved   {} (loads in PyTorch)", run->model().string()));
  message(fmt::format("next    ringgrad eval {} --confusion", run->path().string()));
  if (json_wanted())
    print_json({{"test_accuracy", test->accuracy()},
                {"test_loss", test->loss},
                {"epochs", training.epoch()},
                {"steps", training.step()},
                {"seconds", tally.seconds},
                {"images_per_second", tally.images_per_second()},
                {"parameters", training.model().num_parameters()},
                {"run", run->path().string()}});
  return kOk;
}

}  // namespace ringgrad::program
