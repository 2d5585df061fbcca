#include "ringgrad/models/program/commands/train_rank.h"

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
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/models/program/commands/end_of_run.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/saved_model.h"
#include "ringgrad/models/program/train/training.h"

namespace ringgrad::program {

std::string resume_command(const RunDirectory& run) { return program_command("train --resume " + run.path().string()); }

namespace {

using Clock = std::chrono::steady_clock;

// "256 = 2 × 64 × 2 ranks": the images of a step, and where they come from.
std::string effective_batch(const Recipe& recipe, const ProcessGroup* group, int shards) {
  std::string text = std::to_string(recipe.step_batch());
  if (recipe.accumulate > 1 || group) text += " =";
  if (recipe.accumulate > 1) text += fmt::format(" {} ×", recipe.accumulate);
  if (shards > 0) return text + fmt::format(" {} shards", shards);
  if (group) return text + fmt::format(" {} × {} ranks", recipe.batch / group->size(), group->size());
  return recipe.accumulate > 1 ? text + fmt::format(" {}", recipe.batch) : text;
}

void print_header(const RunConfig& config, Training& training, const Data& data, const ProcessGroup* group) {
  const auto& shape = data.train_set.images.shape();
  headline("ringgrad " RINGGRAD_VERSION,
           fmt::format(" · {} · seed {}", describe(*config.division, group), config.seed));
  message("data    {} {} train / {} test, {}×{}×{}{}{}", config.facts.name, with_commas(data.train_set.size()),
          with_commas(data.test_set.size()), shape[2], shape[3], shape[1],
          training.data_on_device() ? " · on the device, augmented there" : "",
          training.step_captured() ? " · steps are captured" : "");
  for (const std::string& said : {data.division, data.left_out})
    if (!said.empty()) message("        {}", said);
  const int64_t trained = training.trained_parameters(), all = training.model().num_parameters();
  message("model   {} {} parameters{}", config.recipe.model, with_commas(all),
          trained < all ? fmt::format(", {} of them trained", with_commas(trained)) : "");
  message("recipe  {} · batch {} · {} steps × {} epochs", summary(config.recipe),
          effective_batch(config.recipe, group, config.division->shards), training.steps_per_epoch(),
          config.recipe.epochs);
}

// How fast an epoch went, on this rank.
struct Pace {
  double images_per_second, seconds;
  double data_wait;                 // for batches, as a part of the time
  std::optional<double> comm_wait;  // for other ranks and their gradients, likewise
};

// What an epoch came to. Collective where training is.
struct EpochReport {
  double loss;
  std::optional<Pace> pace;      // none: another process has trained the epoch
  std::optional<uint64_t> hash;  // of the parameters, the same on all ranks
  Evaluation test;
};

// An epoch's line in a table of 80 columns, for people, under the table's head where it is the first.
void print_row(const nlohmann::json& metrics) {
  static bool first = true;
  if (std::exchange(first, false))
    result("{:>5}{:>9}{:>10}{:>11}{:>11}{:>13}{:>9}{:>10}", "epoch", "loss", "test acc", "test loss", "img/s",
           "wait: data", "ranks", "time");
  const auto share = [&](const char* name) {
    return metrics.contains(name) ? fmt::format("{:.1f} %", 100 * metrics[name].get<double>()) : "";
  };
  const double pace = metrics.value("images_per_second", 0.0);
  result("{:>5}{:>9.4f}{:>10}{:>11.4f}{:>11}{:>13}{:>9}{:>10}", metrics["epoch"].get<int>(),
         metrics["loss"].get<double>(), fmt::format("{:.2f} %", 100 * metrics["test_accuracy"].get<double>()),
         metrics["test_loss"].get<double>(), pace > 0 ? with_commas(static_cast<int64_t>(pace)) : "",
         share("waiting_for_data"), share("waiting_for_communication"),
         metrics.contains("seconds") ? human_time(metrics["seconds"]) : "");
}

void report_epoch(Course& course, const Training& training, const EpochReport& epoch) {
  std::string line = fmt::format("epoch={} step={} loss={:.4f} test_acc={:.4f} test_loss={:.4f}", training.epoch(),
                                 training.step(), epoch.loss, epoch.test.accuracy(), epoch.test.loss);
  nlohmann::json metrics = {{"epoch", training.epoch()},
                            {"step", training.step()},
                            {"loss", epoch.loss},
                            {"test_accuracy", epoch.test.accuracy()},
                            {"test_loss", epoch.test.loss}};
  if (const auto& pace = epoch.pace) {
    line += fmt::format(" img_s={:.0f} sec={:.2f} data_wait={:.3f}", pace->images_per_second, pace->seconds,
                        pace->data_wait);
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
  course.end_epoch(metrics, epoch.test);  // first: who has read the line may read the run, too
  if (on_terminal())
    print_row(metrics);
  else
    result(line);
}

// Collective where training is: the signal may have reached another rank only.
int stopped_by_signal(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const std::vector<int64_t> own{interrupted()};
  const auto signals = group ? all_gather_values(*group, own) : own;
  if (!run) return kOk;
  result("stopped at step {} · resume: {}", training.step(), resume_command(*run));
  return 128 + static_cast<int>(*std::max_element(signals.begin(), signals.end()));
}

// A run that was stopped between an epoch's last checkpoint and the end of its evaluation owes the epoch's line. All
// ranks hear it from the one that writes.
bool owes_epoch(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const bool lacks_line = run && training.at_epoch_end() && run->last_epoch() < training.epoch();
  const Tensor owes = full({}, lacks_line, {.dtype = DType::Int64});
  if (group) group->broadcast(owes, 0).wait();
  return owes.item<int64_t>() != 0;
}

// Keeps what training has come to for the next generation, however this one ends.
class Keeping {
 public:
  Keeping(Training& training, ElasticRun& run) : training_(training), run_(run) { training.load(run.kept); }
  ~Keeping() { run_.kept = training_.state(); }
  Keeping(const Keeping&) = delete;

  // Collective: takes training to where the most advanced rank's is.
  void catch_up(ProcessGroup& group) {
    const TrainingState all = hand_over(group, training_.state());
    if (all.step > training_.step()) training_.load(all);
    if (run_.begun_at < 0) run_.begun_at = training_.step();
    run_.begun_at = std::stoll(broadcast_text(group, std::to_string(run_.begun_at), 0));  // rank 0 is no newcomer
    if (run_.job.generation() > 1)
      message("note    generation {}: {} rank{} on after step {}", run_.job.generation(), group.size(),
              group.size() == 1 ? " goes" : "s go", training_.step());
  }

 private:
  Training& training_;
  ElasticRun& run_;
};

}  // namespace

int train_rank(const TrainOptions& options, const RunConfig& config, const Data& data, const RunDirectory* run,
               ProcessGroup* group, ElasticRun* elastic) {
  silence_console(group && !group->is_main_process());
  const bool goes_on = elastic && elastic->job.generation() > 1;  // from what other ranks of this job have come to
  const ImageDataset& test_set = data.test_set;
  set_conv_algorithm(conv_algorithm_named(config.recipe.conv));
  set_provider(provider_named(config.recipe.provider));
  Training training(config, data.train_set, group, options.workers, options.init);
  const bool has_state = elastic && elastic->kept.step > 0;
  if (!options.resume.empty() && !has_state) training.load(RunDirectory::open(options.resume).checkpoint());
  std::optional<Keeping> keeping;
  if (elastic) keeping.emplace(training, *elastic).catch_up(*group);
  if (group) check_same_lines(*group, "train", "checkpoint", {fmt::format("step {}", training.step())});
  const std::filesystem::path checkpoint = run ? run->checkpoint() : "";
  if (!goes_on) print_header(config, training, data, group);
  catch_interrupts(run ? "note    this step is finished and saved; a second signal ends at once" : nullptr);
  if (elastic) signal(SIGTERM, SIG_DFL);  // it asks this rank alone to leave: the launcher asks all by another one

  const auto begun_at = elastic ? elastic->begun_at : training.step();
  const auto enough = [&] { return options.max_steps > 0 && training.step() - begun_at >= options.max_steps; };
  const auto permit = [&] {  // to write what outlives this rank
    return elastic && run ? std::make_unique<OwnSeat::WritePermit>(elastic->job.seat()) : nullptr;
  };

  const Device device(config.division->device);
  Course course(options, config, data, training, run, group);
  const auto tested = [&] {
    const auto start = Clock::now();
    Evaluation test =
        evaluate(training.model(), test_set, normalization_of(config.facts), device, group, config.division->shards);
    course.test_seconds += seconds_since(start);
    CHECK(test.interrupted || std::isfinite(test.loss), "train: the loss on the test images is ", test.loss,
          " after step ", training.step(), ": the run diverged. A lower --lr helps, or --clip-norm 1");
    return test;
  };

  std::optional<EpochReport> last;  // of the weights as they stand
  const auto end_epoch = [&](const std::optional<Pace>& pace) {
    last = EpochReport{training.mean_loss(), pace, {}, {}};
    if (group) last->hash = training.check_identical();
    course.gather();
    last->test = tested();
    const auto may_write = permit();
    if (run && !last->test.interrupted) report_epoch(course, training, *last);
    return !last->test.interrupted;
  };
  const auto save = [&] {
    const auto start = Clock::now();
    const auto may_write = permit();
    training.save(checkpoint);
    course.save_seconds += seconds_since(start);
  };
  const auto stopped = [&] {
    course.gather();
    const int code = stopped_by_signal(run, training, group);
    const auto may_write = permit();
    if (run) end_run(options, data, *run, course, {});
    return code;
  };
  bool stop = enough();
  if (goes_on && training.step() > 0 && (elastic->job.is_last() || stop || training.at_epoch_end())) save();
  if (elastic && elastic->job.is_last()) return kRankDied;
  if ((goes_on || !options.resume.empty()) && owes_epoch(run, training, group) && !end_epoch({})) return stopped();

  while (training.epoch() < config.recipe.epochs && !stop) {
    Progress progress(fmt::format("{:5}", training.epoch() + 1), training.steps_per_epoch());
    const auto start = Clock::now();
    const int64_t images_before = training.at_epoch_end() ? 0 : training.images();
    const double data_before = training.waited_for_data();
    const double waited_before = training.waited_for_ranks();
    last.reset();
    course.begin_epoch();
    training.run_epoch([&] {
      const int64_t done = (training.step() - 1) % training.steps_per_epoch() + 1;
      progress.update(done, [&] { return fmt::format("loss {:.3f}", training.own_mean_loss()); });
      if (options.save_every > 0 && training.step() % options.save_every == 0) save();
      stop = training.interrupted() || enough();
      {
        const auto may_write = permit();
        course.after_step(stop);
      }
      if (goes_on && course.steps == 1)
        message("note    generation {}: step {} is done", elastic->job.generation(), training.step());
      if (elastic && !stop) elastic->job.check();
      return stop;
    });
    progress.clear();
    const double seconds = seconds_since(start);
    const int64_t images = training.images() - images_before;
    course.train_seconds += seconds;
    course.images += images;

    save();
    if (training.interrupted()) return stopped();
    if (training.at_epoch_end()) {
      const double data_wait = (training.waited_for_data() - data_before) / seconds;
      Pace pace{static_cast<double>(images) / seconds, seconds, data_wait, {}};
      if (group) pace.comm_wait = (training.waited_for_ranks() - waited_before) / seconds;
      if (!end_epoch(pace)) return stopped();
    }
  }
  const Evaluation test = last ? last->test : tested();
  if (test.interrupted) return stopped();
  const uint64_t hash = last && last->hash ? *last->hash : group ? training.check_identical() : 0;
  course.gather();
  if (!run) return kOk;
  const auto may_write = permit();
  save_model(run->model(), training.model(), config.recipe, config.facts);

  result("done    {:.2f} % test accuracy, loss {:.4f} · {} steps in {} · {} img/s", 100 * test.accuracy(), test.loss,
         course.steps, human_time(course.train_seconds), with_commas(static_cast<int64_t>(course.images_per_second())));
  result("batch   {} · {} steps an epoch", effective_batch(config.recipe, group, config.division->shards),
         training.steps_per_epoch());
  if (group) result("ranks   parameters bit-identical on {0} of {0} ranks ({1:016x})", group->size(), hash);
  result("saved   {} (loads in PyTorch)", run->model().string());
  if (training.epoch() < config.recipe.epochs)
    message("next    {} goes on after step {}", resume_command(*run), training.step());
  const Verdict verdict = end_run(options, data, *run, course, test);
  print_json({{"test_accuracy", test.accuracy()},
              {"test_loss", test.loss},
              {"epochs", training.epoch()},
              {"steps", training.step()},
              {"batch", config.recipe.step_batch()},
              {"ranks", group ? group->size() : 1},
              {"shards", config.division->shards},
              {"seconds", course.train_seconds},
              {"images_per_second", course.images_per_second()},
              {"waiting_for_data", course.train_seconds > 0 ? training.waited_for_data() / course.train_seconds : 0},
              {"parameters", training.model().num_parameters()},
              {"parameters_sha256", sha256_of_state(training.model())},
              {"data_on_device", training.data_on_device()},
              {"step_captured", training.step_captured()},
              {"run", run->path().string()},
              {"history", course.epochs()},
              {"verdict", to_json(verdict)}});
  return kOk;
}

}  // namespace ringgrad::program
