// `ringgrad gan`: a GAN on one of the data sets, on one process or several ranks, with a page of its drawings per
// epoch.
#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/gan.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/commands/image_grid.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/run_directory.h"
#include "ringgrad/nn/safetensors.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

json settings_of(const GanOptions& o) {
  return {{"gan", {{"data", o.data}, {"batch", o.batch}, {"lr", o.lr}, {"seed", o.seed}, {"epochs", o.epochs}}},
          {"data_dir", std::filesystem::absolute(data_directory(o.data_dir)).lexically_normal().string()}};
}

// What a run that goes on was told at first; how many ranks and steps is asked anew.
GanOptions resumed(GanOptions o) {
  const std::filesystem::path config = RunDirectory::open(o.resume).path() / "config.json";
  try {
    std::ifstream in(config);
    const json settings = json::parse(in);
    const json& gan = settings.at("gan");
    gan.at("data").get_to(o.data);
    gan.at("batch").get_to(o.batch);
    gan.at("lr").get_to(o.lr);
    gan.at("seed").get_to(o.seed);
    gan.at("epochs").get_to(o.epochs);
    settings.at("data_dir").get_to(o.data_dir);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("gan: {} is not of a run of `gan`: {}", config.string(), error.what()));
  }
  return o;
}

// The sums and counts of the epoch under way, over all ranks.
struct Epoch {
  double discriminator = 0, generator = 0;
  int64_t steps = 0;
};

class GanTraining {
 public:
  GanTraining(const GanOptions& options, const RunDirectory* run, ProcessGroup* group)
      : options_(options),
        run_(run),
        group_(group),
        images_(load_dataset(options.data, Split::Train, options.data_dir)),
        gan_({.channels = images_.images.size(1), .image_size = images_.images.size(2), .lr = options.lr}, group),
        loader_(
            images_,
            std::make_shared<DistributedSampler>(images_.size(), ranks(), group ? group->rank() : 0,
                                                 DistributedSamplerOptions{.seed = options.seed, .drop_last = true}),
            {.batch_size = options.batch / ranks(),
             .num_workers = 1,
             .drop_last = true,
             .transform = {.mean = {0.5}, .std = {0.5}}}) {
    CHECK(loader_.size() > 0, "gan: a batch of ", options.batch, " is more than the ", images_.size(), " images of ",
          options.data);
    if (!options.resume.empty()) load();
  }

  int train() {
    message("gan     {} · {} images · batch {} = {} × {} · {} steps an epoch", options_.data,
            with_commas(images_.size()), options_.batch, options_.batch / ranks(), ranks(), loader_.size());
    while (loader_.state().epoch < options_.epochs) {
      const int64_t epoch = loader_.state().epoch + 1, steps_before = epoch_.steps;
      const auto begin = std::chrono::steady_clock::now();
      Progress progress(fmt::format("epoch {}/{}", epoch, options_.epochs), loader_.size());
      for (const Batch& batch : loader_) {
        step(batch.data);
        progress.update(epoch_.steps, [&] { return fmt::format("generator {:.3f}", mean(epoch_.generator)); });
        if (stop_) break;
      }
      progress.clear();
      const bool whole = epoch_.steps == loader_.size();
      if (whole) report(epoch, static_cast<double>(epoch_.steps - steps_before) / seconds_since(begin));
      if (whole) epoch_ = {};
      save();
      if (stop_) break;
    }
    if (stop_ && loader_.state().epoch < options_.epochs && run_)
      result("stopped at step {} · resume: {}", step_, program_command("gan --resume " + run_->path().string()));
    if (run_) nn::save_safetensors(run_->model(), gan_.state_dict());
    if (run_) print_json({{"run", run_->path().string()}, {"steps", step_}, {"epochs", epochs_}});
    return signal_ > 0 ? 128 + signal_ : kOk;
  }

 private:
  int64_t ranks() const { return group_ ? group_->size() : 1; }
  double mean(double sum) const { return sum / static_cast<double>(std::max<int64_t>(1, epoch_.steps)); }

  // A signal may have reached one rank only: all stop after the same step.
  void step(const Tensor& real) {
    const auto [discriminator, generator] = gan_.step(real);
    const Tensor sums = tensor(std::vector<double>{discriminator, generator}, {2}),
                 signal = full({}, interrupted(), {.dtype = DType::Int32});
    if (group_) {
      group_->all_reduce(sums, ReduceOp::Average).wait();
      group_->all_reduce(signal, ReduceOp::Max).wait();
    }
    epoch_.discriminator += sums.data<double>()[0];
    epoch_.generator += sums.data<double>()[1];
    ++epoch_.steps, ++step_, ++steps_of_this_call_;
    signal_ = signal.item<int32_t>();
    stop_ = signal_ > 0 || steps_of_this_call_ == options_.max_steps;
    CHECK(std::isfinite(epoch_.generator + epoch_.discriminator), "gan: a loss of step ", step_,
          " is not finite: the run diverged. A lower --lr helps");
  }

  void report(int64_t epoch, double steps_per_second) {
    if (!run_) return;
    const auto page = run_->path() / fmt::format("samples-{:03}.png", epoch);
    write_image_grid(page, gan_.draw(64));
    const double images = steps_per_second * static_cast<double>(options_.batch);
    epochs_.push_back({{"epoch", epoch},
                       {"discriminator_loss", mean(epoch_.discriminator)},
                       {"generator_loss", mean(epoch_.generator)},
                       {"images_per_second", images},
                       {"samples", page.string()}});
    run_->append_metrics(epochs_.back());
    result("epoch {:>3}  discriminator {:.3f}  generator {:.3f}  {:>6} images/s  {}", epoch, mean(epoch_.discriminator),
           mean(epoch_.generator), with_commas(static_cast<int64_t>(images)), page.string());
  }

  void save() {
    if (run_) {
      const SamplerState at = loader_.state();
      const json progress = {{"step", step_},
                             {"sampler", {at.seed, at.epoch, at.position}},
                             {"epoch", {epoch_.discriminator, epoch_.generator}},
                             {"steps", epoch_.steps}};
      gan_.save(run_->checkpoint(), {{"gan", progress.dump()}});
    }
    if (group_) group_->barrier({.timeout = 10 * default_timeout()}).wait();  // a disk may be slow
  }

  void load() {
    const std::string path = RunDirectory::open(options_.resume).checkpoint();
    const auto progress = gan_.load(path);
    try {
      const json at = json::parse(progress.at("gan"));
      at.at("step").get_to(step_);
      loader_.load_state({at.at("sampler").at(0), at.at("sampler").at(1), at.at("sampler").at(2)});
      epoch_ = {at.at("epoch").at(0), at.at("epoch").at(1), at.at("steps")};
    } catch (const std::exception& error) {
      throw DataError(fmt::format("gan: {} lacks what continuing needs: {}", path, error.what()));
    }
  }

  const GanOptions& options_;
  const RunDirectory* run_;  // of the rank that writes
  ProcessGroup* group_;
  ImageDataset images_;
  models::Gan gan_;
  DataLoader loader_;
  Epoch epoch_;
  int64_t step_ = 0, steps_of_this_call_ = 0;
  int signal_ = 0;
  bool stop_ = false;
  json epochs_ = json::array();
};

RunDirectory open_run(const GanOptions& o) {
  if (!o.resume.empty()) return RunDirectory::resume(o.resume);
  RunDirectory run = RunDirectory::create(o.out, o.data + "-gan");
  run.write_config(settings_of(o));
  return run;
}

int train_here(const GanOptions& o, ProcessGroup* group) {
  const int ranks = group ? group->size() : 1;
  if (o.batch % ranks != 0) throw UsageError("gan: a batch of {} cannot be divided by {} ranks", o.batch, ranks);
  if (group) check_same_lines(*group, "gan", "settings", {settings_of(o)["gan"].dump(), str("steps ", o.max_steps)});
  manual_seed(o.seed);
  catch_interrupts("note    this step is finished and saved; a second signal ends at once");
  if (group && !group->is_main_process()) {
    silence_console();
    return GanTraining(o, nullptr, group).train();
  }
  const std::string launchers = variable(kRunVariable);
  const RunDirectory run = launchers.empty() ? open_run(o) : RunDirectory::open(launchers);
  return GanTraining(o, &run, group).train();
}

}  // namespace

int gan(const GanOptions& asked) {
  GanOptions options = asked.resume.empty() ? asked : resumed(asked);
  options.data_dir = data_directory(options.data_dir);
  if (!rank_environment().source.empty()) {
    int code = kOk;
    launch_or_throw([&] { code = train_here(options, &process_group()); });
    return code;
  }
  if (options.batch % options.ranks != 0)
    throw UsageError("gan: --batch {} cannot be divided by --ranks {}", options.batch, options.ranks);
  // What is missing is said once, drawn once, and leaves no directory of a run.
  if (const int64_t images = load_dataset(options.data, Split::Train, options.data_dir).size(); options.batch > images)
    throw UsageError("gan: --batch {} is more than the {} images of {}", options.batch, images, options.data);
  if (options.ranks == 1) return train_here(options, nullptr);
  const RunDirectory run = open_run(options);
  setenv(kRunVariable, run.path().c_str(), 1);
  return launch_or_throw([] {}, {.num_processes = options.ranks});
}

}  // namespace ringgrad::program
