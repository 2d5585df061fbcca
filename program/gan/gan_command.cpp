// `ringgrad gan`: a GAN on one of the data sets, on one process or several ranks, with a page of
// its drawings per epoch.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/batch_part_sampler.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/image_grid.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/models/gan.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/run_of_ranks.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {
namespace {

struct GanOptions {
  std::string data = "digits";
  std::string data_dir;
  int64_t batch = 128;  // over all ranks
  int epochs = 5;
  int ranks = 1;
  int shards = 0;  // virtual ranks (virtual_ranks.h); 0: each rank is one
  double lr = 2e-4;
  uint64_t seed = 1;
  // As for train.
  std::string out;
  std::string resume;
  int64_t max_steps = 0;  // stop after this number of steps of this call; 0: never
};
// Visits the settings that a run keeps for its whole life (run_of_ranks.h).
void each_setting(GanOptions& o, const auto& visit) {
  visit("data", o.data);
  visit("data_dir", o.data_dir);
  visit("batch", o.batch);
  visit("lr", o.lr);
  visit("seed", o.seed);
  visit("epochs", o.epochs);
  visit("shards", o.shards);
}

using nlohmann::json;

const RunKind kGanRun = "gan";

// Divides a batch's images among the ranks: neighbouring ones, in the parts that the GAN asks for.
// Leaves out a last batch that is not full.
std::shared_ptr<Sampler> make_sampler(int64_t images, const GanOptions& options,
                                      const models::Gan& gan) {
  const auto part = [&gan, whole = options.batch](int64_t batch) {
    const RowRange rows = batch == whole ? gan.own_rows(batch) : RowRange{};
    return BatchPartSampler::Part{rows.begin, rows.end};
  };
  return std::make_shared<BatchPartSampler>(images, options.batch, part, options.seed);
}

// The sums and counts of the epoch under way.
struct Epoch {
  double discriminator = 0;
  double generator = 0;
  int64_t steps = 0;
};

class GanTraining {
 public:
  GanTraining(const GanOptions& options, const RunDirectory* run, ProcessGroup* group)
      : options_(options),
        run_(run),
        group_(group),
        images_(load_dataset(options.data, Split::Train, options.data_dir)),
        gan_({.channels = images_.images.size(1),
              .image_size = images_.images.size(2),
              .lr = options.lr,
              .shards = options.shards},
             group),
        loader_(images_, make_sampler(images_.size(), options, gan_),
                {.batch_size = gan_.own_rows(options.batch).size(),
                 .num_workers = 1,
                 .drop_last = true,
                 .transform = {.mean = {0.5}, .std = {0.5}}}) {
    CHECK(loader_.size() > 0, "gan: a batch of ", options.batch, " is more than the ",
          images_.size(), " images of ", options.data);
    if (!options.resume.empty()) load();
  }

  int train() {
    message("gan     {} · {} · batch {} on {}{} · {} an epoch", options_.data,
            counted(images_.size(), "image"), options_.batch, counted(ranks(), "rank"),
            options_.shards > 0 ? ", in " + counted(options_.shards, "shard") : "",
            counted(loader_.size(), "step"));
    while (loader_.state().epoch < options_.epochs) {
      const int64_t epoch = loader_.state().epoch + 1;
      const int64_t steps_before = epoch_.steps;
      const auto begin = std::chrono::steady_clock::now();
      Progress progress(fmt::format("epoch {}/{}", epoch, options_.epochs), loader_.size());
      for (const Batch& batch : loader_) {
        step(batch.data);
        progress.update(epoch_.steps,
                        [&] { return fmt::format("generator {:.3f}", mean(epoch_.generator)); });
        if (stop_) break;
      }
      progress.clear();
      const bool whole = epoch_.steps == loader_.size();
      if (whole)
        report(epoch, static_cast<double>(epoch_.steps - steps_before) / seconds_since(begin));
      if (whole) epoch_ = {};
      save();
      if (stop_) break;
    }
    if (!run_) return signal_ > 0 ? 128 + signal_ : kOk;
    nn::save_safetensors(run_->model(), gan_.networks().state_dict());
    nlohmann::json document = {{"run", run_->path().string()},
                               {"steps", step_},
                               {"ranks", ranks()},
                               {"shards", options_.shards},
                               {"epochs", epochs_},
                               {"parameters_sha256", sha256_of_state(gan_.networks())}};
    if (stop_ && loader_.state().epoch < options_.epochs)
      say_stopped(kGanRun, *run_, fmt::format("step {}", step_), signal_, document);
    print_json(document);
    return signal_ > 0 ? 128 + signal_ : kOk;
  }

 private:
  int64_t ranks() const { return group_ ? group_->size() : 1; }
  double mean(double sum) const {
    return sum / static_cast<double>(std::max<int64_t>(1, epoch_.steps));
  }

  // A signal may have reached one rank only: all stop after the same step.
  void step(const Tensor& real) {
    const auto [discriminator, generator] = gan_.step(real, options_.batch);
    const Tensor signal = full({}, interrupted(), {.dtype = DType::Int32});
    if (group_) group_->all_reduce(signal, ReduceOp::Max).wait();
    epoch_.discriminator += discriminator;
    epoch_.generator += generator;
    ++epoch_.steps;
    ++step_;
    ++steps_of_this_call_;
    signal_ = signal.item<int32_t>();
    stop_ = signal_ > 0 || steps_of_this_call_ == options_.max_steps;
    CHECK(std::isfinite(epoch_.generator + epoch_.discriminator), "gan: a loss of step ", step_,
          " is not finite: the run diverged. A lower --lr helps");
  }

  void report(int64_t epoch, double steps_per_second) {
    if (!run_) return;
    const auto page = run_->path() / fmt::format("samples-{:03}.png", epoch);
    save_image(gan_.draw(64), page, {.padding = 1, .pad_value = 40});
    const double images = steps_per_second * static_cast<double>(options_.batch);
    epochs_.push_back({{"epoch", epoch},
                       {"discriminator_loss", mean(epoch_.discriminator)},
                       {"generator_loss", mean(epoch_.generator)},
                       {"images_per_second", images},
                       {"samples", page.string()}});
    run_->append_metrics(epochs_.back());
    news("epoch {:>3}  discriminator {:.3f}  generator {:.3f}  {:>6} images/s  {}", epoch,
         mean(epoch_.discriminator), mean(epoch_.generator),
         with_commas(static_cast<int64_t>(images)), page.string());
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
    const std::string path = RunDirectory::open(options_.resume, kGanRun).checkpoint();
    const auto progress = gan_.load(path);
    try {
      const json at = json_from(progress.at("gan"));
      at.at("step").get_to(step_);
      loader_.load_state({at.at("sampler").at(0), at.at("sampler").at(1), at.at("sampler").at(2)});
      epoch_ = {at.at("epoch").at(0), at.at("epoch").at(1), at.at("steps")};
    } catch (const std::exception& error) {
      throw DataError(fmt::format("gan: {} lacks what continuing needs: {}", path, error.what()));
    }
  }

  const GanOptions& options_;
  const RunDirectory* run_;  // only on the rank that writes
  ProcessGroup* group_;
  ImageDataset images_;
  models::Gan gan_;
  DataLoader loader_;
  Epoch epoch_;
  int64_t step_ = 0;
  int64_t steps_of_this_call_ = 0;
  int signal_ = 0;
  bool stop_ = false;
  json epochs_ = json::array();
};

int gan(const GanOptions& asked) {
  GanOptions options = asked;
  restore_settings(kGanRun, options);
  if (!options.resume.empty() &&
      RunDirectory::open(options.resume, kGanRun).has_all(options.epochs)) {
    nothing_to_go_on_with(kGanRun, options.resume,
                          fmt::format("all its {}", counted(options.epochs, "epoch")));
    return kOk;
  }
  // They may have moved.
  const std::string data_dir = directory_of_data(options.data, asked.data_dir,
                                                 options.resume.empty() ? "" : options.data_dir);
  options.data_dir = std::filesystem::absolute(data_dir).lexically_normal().string();
  // The data are checked and drawn once, before a run directory is made.
  if (const int64_t images = load_dataset(options.data, Split::Train, options.data_dir).size();
      options.batch > images)
    throw UsageError("gan: --batch {} is more than the {} images of {}", options.batch, images,
                     options.data);
  if (const int parts = std::max(options.shards, options.ranks); options.batch < parts)
    throw UsageError("gan: --batch is {} for {} parts, and each needs an image at least",
                     options.batch, parts);
  return train_on_ranks({.kind = kGanRun,
                         .name = options.data + "-gan",
                         .out = options.out,
                         .resume = options.resume,
                         .ranks = options.ranks,
                         .shards = options.shards,
                         .max_steps = options.max_steps,
                         .config = {{"gan", settings_of(options)}}},
                        [&](const RunDirectory* run, ProcessGroup* group) {
                          manual_seed(options.seed);
                          return GanTraining(options, run, group).train();
                        });
}

void add_options(CLI::App* app, GanOptions& o) {
  app->add_option("--data", o.data, "digits, shapes, mnist, cifar10 or cifar100")
      ->capture_default_str();
  add_data_dir_option(app, o.data_dir);
  app->add_option("--batch", o.batch, "images a step, over all ranks")
      ->capture_default_str()
      ->check(kPositive);
  app->add_option("--epochs", o.epochs, "passes over the data")
      ->capture_default_str()
      ->check(kPositive);
  app->add_option("--lr", o.lr, "of Adam, for both networks")
      ->capture_default_str()
      ->check(check_above_zero);
  app->add_option("--seed", o.seed, "of weights, noise and order")->capture_default_str();
  app->add_option("--ranks", o.ranks, "processes that share each batch")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-gan)");
  add_whole_life(app, {"--data", "--batch", "--epochs", "--lr", "--seed", "--out"},
                 "parts of each batch; as many give the same bits on any number of ranks (0: one "
                 "for each rank)",
                 o);
  app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")
      ->check(kNotNegative);
}

const Command kGan(160, "gan", "Train a generator against a discriminator: a network that draws",
                   gan, add_options);

}  // namespace
}  // namespace ringgrad::program
