#include "ringgrad/program/commands/train_rank.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/program/commands/end_of_run.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/unread_output.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {

std::string resume_command(const RunDirectory& run) {
  return program_command("train --resume " + shell_word(run.path().string()));
}

namespace {

using Clock = std::chrono::steady_clock;

// Returns "256 = 2 × 64 × 2 ranks": the images of a step, and their parts.
std::string effective_batch(const Recipe& recipe, const ProcessGroup* group, int shards) {
  std::string text = std::to_string(recipe.step_batch());
  if (recipe.accumulate > 1 || group) text += " =";
  if (recipe.accumulate > 1) text += fmt::format(" {} ×", recipe.accumulate);
  if (shards > 0) return text + " " + counted(shards, "shard");
  if (group)
    return text +
           fmt::format(" {} × {}", recipe.batch / group->size(), counted(group->size(), "rank"));
  return recipe.accumulate > 1 ? text + fmt::format(" {}", recipe.batch) : text;
}

void print_header(const RunConfig& config, Training& training, const Data& data,
                  const ProcessGroup* group) {
  const auto& shape = data.train_set.images.shape();
  headline("ringgrad " RINGGRAD_VERSION,
           fmt::format(" · {} · seed {}", describe(*config.parallel_config, group), config.seed));
  const std::string& why_not = training.step_not_captured();
  message("data    {} {} train / {} test, {}×{}×{}{}{}", config.facts.name,
          with_commas(data.train_set.size()), with_commas(data.test_set.size()), shape[2], shape[3],
          shape[1], training.data_on_device() ? " · on the device, augmented there" : "",
          training.step_captured() ? " · steps are captured"
          : why_not.empty()        ? ""
                                   : " · steps are not captured: " + why_not);
  for (const std::string& note : data.notes) message("        {}", note);
  const int64_t trained = training.trained_parameters();
  const int64_t all = training.model().num_parameters();
  message("model   {} {} parameters{}", config.recipe.model, with_commas(all),
          trained < all ? fmt::format(", {} of them trained", with_commas(trained)) : "");
  message("recipe  {} · batch {} · {} × {}", summary(config.recipe),
          effective_batch(config.recipe, group, config.parallel_config->shards),
          counted(training.steps_per_epoch(), "step"), counted(config.recipe.epochs, "epoch"));
}

// The speed of an epoch on this rank.
struct Pace {
  double images_per_second;
  double seconds;
  double data_wait;                 // for batches, as a part of the time
  std::optional<double> comm_wait;  // for other ranks and their gradients, likewise
};

// The results of an epoch. Collective where training is.
struct EpochReport {
  double loss;
  std::optional<Pace> pace;      // none: another process has trained the epoch
  std::optional<uint64_t> hash;  // a hash of the parameters, the same on all ranks
  Evaluation test;
  std::optional<Evaluation> validation;
};

// The best epoch so far, by the validation images.
struct Best {
  int64_t epoch = 0;  // 0: none yet
  double accuracy = 0;
  double loss = 0;
  bool is_beaten_by(double other_accuracy, double other_loss) const {
    return epoch == 0 || other_accuracy > accuracy ||
           (other_accuracy == accuracy && other_loss < loss);
  }
};

// Prints an epoch's line in a table of 80 columns, below the table's head if it is the first.
void print_row(const nlohmann::json& metrics) {
  static const std::vector<Column> columns = {
      {"epoch", 5},     {"loss", 9},           {"test acc", 10}, {"test loss", 11, 2},
      {"img/s", 11, 1}, {"wait: data", 13, 4}, {"ranks", 9, 3},  {"time", 10}};
  static bool first = true;
  if (std::exchange(first, false)) news(row_of(columns, titles_of(columns)));
  const auto number = [&](const char* name) { return metrics[name].get<double>(); };
  const auto share = [&](const char* name) {
    return metrics.contains(name) ? fmt::format("{:.1f} %", 100 * number(name)) : "";
  };
  const double pace = metrics.value("images_per_second", 0.0);
  news(row_of(columns, {metrics["epoch"].dump(), fmt::format("{:.4f}", number("loss")),
                        fmt::format("{:.2f} %", 100 * number("test_accuracy")),
                        fmt::format("{:.4f}", number("test_loss")),
                        pace > 0 ? with_commas(static_cast<int64_t>(pace)) : "",
                        share("waiting_for_data"), share("waiting_for_communication"),
                        metrics.contains("seconds") ? human_time(number("seconds")) : ""}));
}

void report_epoch(RunMetrics& run_metrics, const Training& training, const EpochReport& epoch) {
  std::string line =
      fmt::format("epoch={} step={} loss={:.4f} test_acc={:.4f} test_loss={:.4f}", training.epoch(),
                  training.step(), epoch.loss, epoch.test.accuracy(), epoch.test.loss);
  nlohmann::json metrics = {{"epoch", training.epoch()},
                            {"step", training.step()},
                            {"loss", epoch.loss},
                            {"test_accuracy", epoch.test.accuracy()},
                            {"test_loss", epoch.test.loss}};
  if (const auto& validation = epoch.validation) {
    line +=
        fmt::format(" val_acc={:.4f} val_loss={:.4f}", validation->accuracy(), validation->loss);
    metrics["validation_accuracy"] = validation->accuracy();
    metrics["validation_loss"] = validation->loss;
  }
  if (const auto& pace = epoch.pace) {
    line += fmt::format(" img_s={:.0f} sec={:.2f} data_wait={:.3f}", pace->images_per_second,
                        pace->seconds, pace->data_wait);
    metrics["images_per_second"] = pace->images_per_second;
    metrics["seconds"] = pace->seconds;
    metrics["waiting_for_data"] = pace->data_wait;
    if (pace->comm_wait) {
      line += fmt::format(" comm_wait={:.3f}", *pace->comm_wait);
      metrics["waiting_for_communication"] = *pace->comm_wait;
    }
  }
  if (epoch.hash) {
    line += fmt::format(" hash={:016x}", *epoch.hash);
    metrics["parameter_hash"] = fmt::format("{:016x}", *epoch.hash);
  }
  // This comes first, because a reader of the line may read the run, too.
  run_metrics.end_epoch(metrics, epoch.test);
  if (on_terminal())
    print_row(metrics);
  else
    news(line);
}

// Returns the exit code. It is collective where training is, because the signal may have reached
// another rank only, and another machine's launcher knows it from its ranks' codes. An elastic
// job's launcher takes a code as the end of one rank.
int stopped_by_signal(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const std::vector<int64_t> own{interrupted()};
  const auto signals = group ? all_gather_values(*group, own) : own;
  const int code = 128 + static_cast<int>(*std::max_element(signals.begin(), signals.end()));
  if (!run) return in_elastic_job() ? kOk : code;
  news("stopped at step {} · resume: {}", training.step(), resume_command(*run));
  return code;
}

// A run that was stopped between an epoch's last checkpoint and the end of its evaluation owes the
// epoch's line. All ranks hear it from the one that writes.
bool owes_epoch(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const bool lacks_line = run && training.at_epoch_end() && run->last_epoch() < training.epoch();
  const Tensor owes = full({}, lacks_line, {.dtype = DType::Int64});
  if (group) group->broadcast(owes, 0).wait();
  return owes.item<int64_t>() != 0;
}

// Keeps the state of training for the next generation, however this one ends.
class StateKeeper {
 public:
  StateKeeper(Training& training, ElasticRun& run) : training_(training), run_(run) {
    training.load(run.kept);
  }
  ~StateKeeper() { run_.kept = training_.state(); }
  StateKeeper(const StateKeeper&) = delete;

  // Collective: brings training to the state of the most advanced rank.
  void catch_up(ProcessGroup& group) {
    const TrainingState all = hand_over(group, training_.state());
    if (all.step > training_.step()) training_.load(all);
    if (run_.begun_at < 0) run_.begun_at = training_.step();
    run_.begun_at = parse_number<int64_t>(broadcast_text(group, std::to_string(run_.begun_at), 0))
                        .value();  // rank 0 is no newcomer
    if (run_.job.generation() > 1)
      message("note    generation {}: {} {} on after step {}", run_.job.generation(),
              counted(group.size(), "rank"), group.size() == 1 ? "goes" : "go", training_.step());
  }

 private:
  Training& training_;
  ElasticRun& run_;
};

// The epochs of a run, from training's current step to the end of the recipe, or of the steps that
// were asked for.
class Epochs {
 public:
  Epochs(const TrainOptions& options, const RunConfig& config, const Data& data,
         const RunDirectory* run, ProcessGroup* group, ElasticRun* elastic, Training& training)
      : options_(options),
        config_(config),
        data_(data),
        run_(run),
        group_(group),
        elastic_(elastic),
        training_(training),
        begun_at_(elastic ? elastic->begun_at : training.step()),
        goes_on_(elastic && elastic->job.generation() > 1),
        run_metrics_(options, config, data, training, run, group) {}

  // Returns the process's exit code. This and the functions below are collective where training is.
  int train() {
    try {
      return train_all();
    } catch (...) {
      if (!elastic_) run_metrics_.save_so_far();  // an elastic job may go on without this rank
      throw;
    }
  }

 private:
  int train_all() {
    if (run_ && !options_.resume.empty()) note_resumption(*run_, config_);
    remember_best();
    stop_ = enough() || impatient();
    const bool leaves = elastic_ && elastic_->job.is_last();
    if (goes_on_ && training_.step() > 0 && (leaves || stop_ || training_.at_epoch_end())) save();
    if (leaves) return kRankDied;
    if ((goes_on_ || !options_.resume.empty()) && owes_epoch(run_, training_, group_) &&
        !end_epoch({}))
      return stopped();
    while (training_.epoch() < config_.recipe.epochs && !stop_) {
      const Pace pace = train_epoch();
      save();
      if (training_.interrupted()) return stopped();
      if (training_.at_epoch_end() && !end_epoch(pace)) return stopped();
    }
    return end();
  }

  bool enough() const {
    return options_.max_steps > 0 && training_.step() - begun_at_ >= options_.max_steps;
  }

  bool impatient() const {
    const int64_t patience = config_.recipe.patience;
    return patience > 0 && best_.epoch > 0 && training_.epoch() - best_.epoch >= patience;
  }

  // For a resumed run: finds the best epoch in the lines of its epochs.
  void remember_best() {
    if (!config_.recipe.chooses()) return;
    if (run_)
      for (const nlohmann::json& line : run_->epochs()) {
        const double accuracy = line.value("validation_accuracy", -1.0);
        const double loss = line.value("validation_loss", 0.0);
        if (best_.is_beaten_by(accuracy, loss)) best_ = {line["epoch"], accuracy, loss};
      }
    if (!group_) return;
    const Tensor known =
        tensor<double>({static_cast<double>(best_.epoch), best_.accuracy, best_.loss});
    group_->broadcast(known, 0).wait();
    const auto numbers = to_vector<double>(known);
    best_ = {static_cast<int64_t>(numbers[0]), numbers[1], numbers[2]};
  }

  // Before the epoch's line, by which a run that goes on knows which epoch that file is of.
  void keep_if_best(const Evaluation& validation) {
    if (!best_.is_beaten_by(validation.accuracy(), validation.loss)) return;
    best_ = {training_.epoch(), validation.accuracy(), validation.loss};
    if (run_ && config_.recipe.keep != "last")
      save_model(run_->best(), training_.evaluated_model(), config_.recipe, config_.facts);
  }

  // The first rank has the file of the best epoch's weights, which all have then.
  void take_best() {
    nn::Module& model = training_.evaluated_model();
    if (run_) load_weights(model, run_->best().string());
    if (group_)
      for (const auto& [name, value] : model.state_dict()) group_->broadcast(value, 0).wait();
  }

  // Returns the permission to write what outlives this rank.
  std::unique_ptr<ElasticMember::WritePermit> permit() const {
    return elastic_ && run_ ? std::make_unique<ElasticMember::WritePermit>(elastic_->job.member())
                            : nullptr;
  }

  void save() {
    const auto start = Clock::now();
    const auto may_write = permit();
    training_.save(run_ ? run_->checkpoint() : "");
    run_metrics_.save_seconds += seconds_since(start);
  }

  // Trains up to the end of an epoch, or to the step at which training stops.
  Pace train_epoch() {
    const int64_t in_epoch = training_.steps_per_epoch();
    const int64_t epoch = training_.epoch() + 1;
    Progress progress(fmt::format("{:5}", epoch), in_epoch,
                      in_epoch * (config_.recipe.epochs - epoch));
    const auto start = Clock::now();
    const int64_t images_before = training_.at_epoch_end() ? 0 : training_.images();
    const double data_before = training_.waited_for_data();
    const double ranks_before = training_.waited_for_ranks();
    last_.reset();
    run_metrics_.begin_epoch();
    training_.run_epoch([&] { return after_step(progress); });
    progress.clear();
    const double seconds = seconds_since(start);
    const int64_t images = training_.images() - images_before;
    run_metrics_.train_seconds += seconds;
    run_metrics_.images += images;
    Pace pace{static_cast<double>(images) / seconds,
              seconds,
              (training_.waited_for_data() - data_before) / seconds,
              {}};
    if (group_ && !training_.step_captured())  // in a replay the host sees no waiting
      pace.comm_wait = (training_.waited_for_ranks() - ranks_before) / seconds;
    return pace;
  }

  // Returns true if the run is to stop here.
  bool after_step(Progress& progress) {
    const int64_t done = (training_.step() - 1) % training_.steps_per_epoch() + 1;
    progress.update(done, [&] { return fmt::format("loss {:.3f}", training_.own_mean_loss()); });
    if (options_.save_every > 0 && training_.step() % options_.save_every == 0) save();
    stop_ = training_.interrupted() || enough();
    {
      const auto may_write = permit();
      run_metrics_.after_step(stop_);
    }
    if (goes_on_ && run_metrics_.steps == 1)
      message("note    generation {}: step {} is done", elastic_->job.generation(),
              training_.step());
    if (elastic_ && !stop_) elastic_->job.check();
    return stop_;
  }

  Evaluation tested() { return tested(data_.test_set, "test"); }
  Evaluation tested(const ImageDataset& set, const char* which) {
    const auto start = Clock::now();
    Evaluation test =
        evaluate(training_.evaluated_model(), set, normalization_of(config_.facts),
                 Device(config_.parallel_config->device), group_, config_.parallel_config->shards);
    run_metrics_.test_seconds += seconds_since(start);
    CHECK(test.interrupted || std::isfinite(test.loss), "train: the loss on the ", which,
          " images is ", test.loss, " after step ", training_.step(),
          ": the run diverged. A lower --lr helps, or --clip-norm 1");
    return test;
  }

  // Returns false if a signal came meanwhile.
  bool end_epoch(const std::optional<Pace>& pace) {
    last_ = EpochReport{training_.mean_loss(), pace, {}, {}, {}};
    if (group_) last_->hash = training_.check_identical();
    run_metrics_.gather();
    last_->test = tested();
    bool interrupted = last_->test.interrupted;
    if (!interrupted && data_.validation_set.size() > 0) {
      last_->validation = tested(data_.validation_set, "validation");
      interrupted = last_->validation->interrupted;
    }
    const auto may_write = permit();
    if (!interrupted && last_->validation) keep_if_best(*last_->validation);
    if (run_ && !interrupted) report_epoch(run_metrics_, training_, *last_);
    stop_ |= impatient();
    return !interrupted;
  }

  int stopped() {
    run_metrics_.gather();
    const int code = stopped_by_signal(run_, training_, group_);
    const auto may_write = permit();
    if (!run_) return code;
    const Verdict verdict = end_run(options_, data_, *run_, run_metrics_, {});
    print_json({{"run", run_->path().string()},
                {"stopped_by_signal", code - 128},
                {"epochs", training_.epoch()},
                {"steps", training_.step()},
                {"history", run_metrics_.epochs()},
                {"resume", resume_command(*run_)},
                {"verdict", to_json(verdict)}});
    return code;
  }

  int end() {
    const bool takes_best = config_.recipe.keep == "best" && best_.epoch > 0;
    if (takes_best) {
      last_.reset();
      take_best();
    }
    const Evaluation test = last_ ? last_->test : tested();
    if (test.interrupted) return stopped();
    const uint64_t hash = last_ && last_->hash ? *last_->hash
                          : group_             ? training_.check_identical()
                                               : 0;
    run_metrics_.gather();
    if (!run_) return kOk;
    const auto may_write = permit();
    save_model(run_->model(), training_.evaluated_model(), config_.recipe, config_.facts);

    news("done    {:.2f} % test accuracy, loss {:.4f} · {} in {} · {} img/s", 100 * test.accuracy(),
         test.loss, counted(run_metrics_.steps, "step"), human_time(run_metrics_.train_seconds),
         with_commas(static_cast<int64_t>(run_metrics_.images_per_second())));
    news("batch   {} · {} an epoch",
         effective_batch(config_.recipe, group_, config_.parallel_config->shards),
         counted(training_.steps_per_epoch(), "step"));
    if (group_)
      news("ranks   parameters bit-identical on {} of {} ({:016x})", group_->size(),
           counted(group_->size(), "rank"), hash);
    news("saved   {} (loads in PyTorch)", run_->model().string());
    if (best_.epoch > 0)
      news("best    epoch {} of {}, {:.2f} % of the validation images{}", best_.epoch,
           training_.epoch(), 100 * best_.accuracy,
           takes_best                      ? ": its weights are kept"
           : config_.recipe.keep == "both" ? ": " + run_->best().string()
                                           : "");
    if (impatient())
      news("stopped after {} without a better epoch", counted(config_.recipe.patience, "epoch"));
    else if (training_.epoch() < config_.recipe.epochs)
      news("stopped after step {} of {} · resume: {}", training_.step(),
           training_.steps_per_epoch() * config_.recipe.epochs, resume_command(*run_));
    const Verdict verdict = end_run(options_, data_, *run_, run_metrics_, test);
    print_json({{"test_accuracy", test.accuracy()},
                {"test_loss", test.loss},
                {"best_epoch", best_.epoch > 0 ? nlohmann::json(best_.epoch) : nlohmann::json()},
                {"epochs", training_.epoch()},
                {"steps", training_.step()},
                {"batch", config_.recipe.step_batch()},
                {"ranks", group_ ? group_->size() : 1},
                {"shards", config_.parallel_config->shards},
                {"seconds", run_metrics_.train_seconds},
                {"images_per_second", run_metrics_.images_per_second()},
                {"waiting_for_data", run_metrics_.train_seconds > 0
                                         ? training_.waited_for_data() / run_metrics_.train_seconds
                                         : 0},
                {"parameters", training_.model().num_parameters()},
                {"parameters_sha256", sha256_of_state(training_.evaluated_model())},
                {"data_on_device", training_.data_on_device()},
                {"step_captured", training_.step_captured()},
                {"run", run_->path().string()},
                {"history", run_metrics_.epochs()},
                {"verdict", to_json(verdict)}});
    return kOk;
  }

  const TrainOptions& options_;
  const RunConfig& config_;
  const Data& data_;
  const RunDirectory* const run_;
  ProcessGroup* const group_;
  ElasticRun* const elastic_;
  Training& training_;
  const int64_t begun_at_;  // the step
  const bool goes_on_;      // it begins with the state of other ranks of this job
  RunMetrics run_metrics_;
  std::optional<EpochReport> last_;  // the report of the current weights
  Best best_;
  bool stop_ = false;
};

}  // namespace

int train_rank(const TrainOptions& options, const RunConfig& config, const Data& data,
               const RunDirectory* run, ProcessGroup* group, ElasticRun* elastic) try {
  silence_console(group && !group->is_main_process());
  go_on_unread();
  set_conv_algorithm(conv_algorithm_named(config.recipe.conv));
  set_provider(provider_named(config.recipe.provider, Device(config.parallel_config->device)));
  set_float32_matmul_precision(config.recipe.float32_matmul_precision);
  Training training(config, data.train_set, group, options.workers, options.init);
  const bool has_state = elastic && elastic->kept.step > 0;
  if (!options.resume.empty() && !has_state)
    training.load(RunDirectory::open(options.resume).checkpoint());
  std::optional<StateKeeper> keeper;
  if (elastic) keeper.emplace(training, *elastic).catch_up(*group);
  if (group) check_same_lines(*group, "train", "checkpoint", training.lines_of_state());
  if (!elastic || elastic->job.generation() == 1) print_header(config, training, data, group);
  catch_interrupts(run ? "note    this step is finished and saved; a second signal ends at once"
                       : nullptr);
  // SIGTERM asks only this rank to leave. The launcher asks all of them by another signal.
  if (elastic) signal(SIGTERM, SIG_DFL);
  return Epochs(options, config, data, run, group, elastic, training).train();
} catch (const OutOfMemoryError& error) {
  throw OutOfMemoryError(what_fits(error, config, group ? group->size() : 1));
}

}  // namespace ringgrad::program
