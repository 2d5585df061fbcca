// `ringgrad train`
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/saved_model.h"
#include "ringgrad/models/program/train/training.h"

namespace ringgrad::program {
namespace {

using Clock = std::chrono::steady_clock;

void check_resume(const TrainOptions& o) {
  if (!o.resume.empty() && (!o.given.empty() || o.seed || !o.out.empty() || !o.init.empty()))
    throw UsageError("--resume takes model, data, seed, recipe and directory from the run; leave those options out");
}

// What this call has done; a resumed run counts anew.
struct Tally {
  int64_t steps = 0, images = 0;
  double seconds = 0;  // of training, without evaluation
  double images_per_second() const { return seconds > 0 ? static_cast<double>(images) / seconds : 0; }
};

void print_header(const RunConfig& config, Training& training, const ImageDataset& train_set,
                  const ImageDataset& test_set, const ProcessGroup* group) {
  const auto& shape = train_set.images.shape();
  headline("ringgrad " RINGGRAD_VERSION,
           fmt::format(" · {} · seed {}", describe(*config.division, group), config.seed));
  message("data    {} {} train / {} test, {}×{}×{}{}{}", config.recipe.data, with_commas(train_set.size()),
          with_commas(test_set.size()), shape[2], shape[3], shape[1],
          training.data_on_device() ? " · on the device, augmented there" : "",
          training.step_captured() ? " · steps are captured" : "");
  message("model   {} {} parameters", config.recipe.model, with_commas(training.model().num_parameters()));
  const std::string parts =
      group ? fmt::format(" = {} × {} ranks", config.recipe.batch / group->size(), group->size()) : "";
  message("recipe  {} · batch {}{} · {} steps × {} epochs", summary(config.recipe), config.recipe.batch, parts,
          training.steps_per_epoch(), config.recipe.epochs);
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

void report_epoch(const RunDirectory& run, const Training& training, const EpochReport& epoch) {
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
  if (on_terminal())
    print_row(metrics);
  else
    result(line);
  run.append_metrics(metrics);
}

std::string resume_command(const RunDirectory& run) { return program_command("train --resume " + run.path().string()); }

// Collective where training is: the signal may have reached another rank only.
int stopped_by_signal(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const std::vector<int64_t> own{interrupted()};
  const auto signals = group ? all_gather_values(*group, own) : own;
  if (!run) return kOk;
  result("stopped at step {} · resume: {}", training.step(), resume_command(*run));
  return 128 + static_cast<int>(*std::max_element(signals.begin(), signals.end()));
}

struct Data {
  explicit Data(const RunConfig& config)
      : train_set(load_dataset(config.recipe.data, Split::Train, config.data_dir)),
        test_set(load_dataset(config.recipe.data, Split::Test, config.data_dir)) {}
  ImageDataset train_set, test_set;
};

// A run that was stopped between an epoch's last checkpoint and the end of its evaluation owes the epoch's line. All
// ranks hear it from the one that writes.
bool owes_epoch(const RunDirectory* run, const Training& training, ProcessGroup* group) {
  const bool lacks_line = run && training.at_epoch_end() && run->last_epoch() < training.epoch();
  const Tensor owes = full({}, lacks_line, {.dtype = DType::Int64});
  if (group) group->broadcast(owes, 0).wait();
  return owes.item<int64_t>() != 0;
}

// One rank of a training run, or the only one. `run` is nullptr on the ranks that write nothing.
int train_rank(const TrainOptions& options, const RunConfig& config, const Data& data, const RunDirectory* run,
               ProcessGroup* group) {
  if (group && !group->is_main_process()) silence_console();
  const auto& [train_set, test_set] = data;
  set_conv_algorithm(conv_algorithm_named(config.recipe.conv));
  set_provider(provider_named(config.recipe.provider));
  Training training(config, train_set, group, options.workers, options.init);
  if (!options.resume.empty()) training.load(RunDirectory::open(options.resume).checkpoint());
  if (group) check_same_lines(*group, "train", "checkpoint", {fmt::format("step {}", training.step())});
  const std::filesystem::path checkpoint = run ? run->checkpoint() : "";
  print_header(config, training, train_set, test_set, group);
  catch_interrupts(run ? "note    this step is finished and saved; a second signal ends at once" : nullptr);

  const auto tested = [&] {
    Evaluation test = evaluate(training.model(), test_set, test_transform(config.recipe.data),
                               Device(config.division->device), group);
    CHECK(test.interrupted || std::isfinite(test.loss), "train: the loss on the test images is ", test.loss,
          " after step ", training.step(), ": the run diverged. A lower --lr helps, or --clip-norm 1");
    return test;
  };

  std::optional<EpochReport> last;  // of the weights as they stand
  const auto end_epoch = [&](const std::optional<Pace>& pace) {
    last = EpochReport{training.mean_loss(), pace, {}, {}};
    if (group) last->hash = training.distributed()->check_identical();
    last->test = tested();
    if (run && !last->test.interrupted) report_epoch(*run, training, *last);
    return !last->test.interrupted;
  };
  if (!options.resume.empty() && owes_epoch(run, training, group) && !end_epoch({}))
    return stopped_by_signal(run, training, group);

  Tally tally;
  bool stop = false;
  while (training.epoch() < config.recipe.epochs && !stop) {
    Progress progress(fmt::format("{:5}", training.epoch() + 1), training.steps_per_epoch());
    const auto start = Clock::now();
    const int64_t images_before = training.at_epoch_end() ? 0 : training.images();
    const double data_before = training.waited_for_data();
    const double waited_before = group ? training.distributed()->totals().exposed_seconds : 0;
    last.reset();
    training.run_epoch([&] {
      ++tally.steps;
      const int64_t done = (training.step() - 1) % training.steps_per_epoch() + 1;
      progress.update(done, [&] { return fmt::format("loss {:.3f}", training.own_mean_loss()); });
      if (options.save_every > 0 && training.step() % options.save_every == 0) training.save(checkpoint);
      stop = training.interrupted() || (options.max_steps > 0 && tally.steps >= options.max_steps);
      return stop;
    });
    progress.clear();
    const double seconds = seconds_since(start);
    const int64_t images = training.images() - images_before;
    tally.seconds += seconds;
    tally.images += images;

    training.save(checkpoint);
    if (training.interrupted()) return stopped_by_signal(run, training, group);
    if (training.at_epoch_end()) {
      const double data_wait = (training.waited_for_data() - data_before) / seconds;
      Pace pace{static_cast<double>(images) / seconds, seconds, data_wait, {}};
      if (group) pace.comm_wait = (training.distributed()->totals().exposed_seconds - waited_before) / seconds;
      if (!end_epoch(pace)) return stopped_by_signal(run, training, group);
    }
  }
  const Evaluation test = last ? last->test : tested();
  if (test.interrupted) return stopped_by_signal(run, training, group);
  const uint64_t hash = last && last->hash ? *last->hash : group ? training.distributed()->check_identical() : 0;
  if (!run) return kOk;
  save_model(run->model(), training.model(), config.recipe);

  result("done    {:.2f} % test accuracy, loss {:.4f} · {} steps in {} · {} img/s", 100 * test.accuracy(), test.loss,
         tally.steps, human_time(tally.seconds), with_commas(static_cast<int64_t>(tally.images_per_second())));
  if (group) result("ranks   parameters bit-identical on {0} of {0} ranks ({1:016x})", group->size(), hash);
  result("saved   {} (loads in PyTorch)", run->model().string());
  if (training.epoch() < config.recipe.epochs)
    message("next    {} goes on after step {}", resume_command(*run), training.step());
  else
    message("next    {} --confusion", program_command("eval " + run->path().string()));
  print_json({{"test_accuracy", test.accuracy()},
              {"test_loss", test.loss},
              {"epochs", training.epoch()},
              {"steps", training.step()},
              {"ranks", group ? group->size() : 1},
              {"seconds", tally.seconds},
              {"images_per_second", tally.images_per_second()},
              {"waiting_for_data", tally.seconds > 0 ? training.waited_for_data() / tally.seconds : 0},
              {"parameters", training.model().num_parameters()},
              {"data_on_device", training.data_on_device()},
              {"step_captured", training.step_captured()},
              {"run", run->path().string()}});
  return kOk;
}

// What the run is to be, or was when it began; its division is not settled yet.
RunConfig configure(const TrainOptions& options) {
  RunConfig config;
  if (options.resume.empty())
    config = {
        make_recipe(options.recipe, options.given), data_directory(options.data_dir), options.seed.value_or(1), {}};
  else
    config = read_config(RunDirectory::open(options.resume));
  if (!options.data_dir.empty()) config.data_dir = options.data_dir;
  config.data_dir = std::filesystem::absolute(config.data_dir).lexically_normal();  // it is read again from elsewhere
  return config;
}

RunDirectory open_run(const TrainOptions& options, const RunConfig& config) {
  if (!options.resume.empty()) return RunDirectory::resume(options.resume);
  RunDirectory run = RunDirectory::create(options.out, fmt::format("{}-{}", config.recipe.data, config.recipe.model));
  try {
    run.write_config(to_json(config));
  } catch (...) {  // the disk is full
    run.discard();
    throw;
  }
  return run;
}

// The process that starts the ranks makes the run's directory, and tells them by this where it is.
constexpr const char* kRunVariable = "RINGGRAD_RUN";

// After a failure: what is left of the run. Ranks that were interrupted have said it themselves, and a checkpoint that
// cannot be read is nothing to go on from.
void leave(const TrainOptions& options, const RunDirectory& run, int code) {
  const bool unreadable = code == kBadData && !options.resume.empty();
  if (std::filesystem::exists(run.checkpoint()) && code < 128 && !unreadable)
    complain(fmt::format("last checkpoint: {} · resume: {}", run.checkpoint().string(), resume_command(run)));
  else if (options.resume.empty() && !std::filesystem::exists(run.checkpoint()))
    run.discard();
}

int leaving_run(const TrainOptions& options, const RunDirectory& run, const std::function<int()>& body) {
  try {
    const int code = body();
    if (code != kOk) leave(options, run, code);
    return code;
  } catch (const std::exception&) {
    leave(options, run, exit_code_of(std::current_exception()));
    throw;
  }
}

uint64_t hash_of(const Tensor& x) {
  return ringgrad::hash_of(x.raw_data(), static_cast<size_t>(x.numel()) * itemsize(x.dtype()));
}

// Ranks that another launcher has started may have different options, or files: that is found here, not after an epoch.
void check_same_work(ProcessGroup& group, const TrainOptions& options, const RunConfig& config, const Data& data) {
  std::vector<std::string> lines = {
      fmt::format("--seed {}", config.seed), fmt::format("--max-steps {}", options.max_steps),
      fmt::format("--save-every {}", options.save_every), fmt::format("--sync-bn {:d}", *config.division->sync_bn)};
  for (const ImageDataset* set : {&data.train_set, &data.test_set})
    lines.push_back(fmt::format("{} {} images ({:016x}) with labels ({:016x})", set->size(),
                                set == &data.train_set ? "training" : "test", hash_of(set->images),
                                hash_of(set->labels)));
  const nlohmann::json recipe = to_json(config.recipe);
  for (const auto& [key, value] : recipe.items()) lines.push_back(fmt::format("{} {}", key, value.dump()));
  check_same_lines(group, "train", "recipe", lines);
}

// This process is one of several ranks that a launcher has started.
int train_as_rank(const TrainOptions& options, const RunConfig& config, const Data& data) {
  ProcessGroup& group = process_group();
  RunConfig own = config;
  if (group.device().is_cuda()) own.division->device = str(group.device());
  check_same_work(group, options, config, data);
  check_divisible(config.recipe.batch, group.size());
  check_sync_bn(*config.division, data.train_set.size(), config.recipe.batch);
  if (!group.is_main_process()) return train_rank(options, own, data, nullptr, &group);
  const std::string launchers = variable(kRunVariable);
  const RunDirectory run = launchers.empty() ? open_run(options, config) : RunDirectory::open(launchers);
  const auto body = [&] { return train_rank(options, own, data, &run, &group); };
  return launchers.empty() ? leaving_run(options, run, body) : body();
}

// Which this process may use.
int cores_allowed() {
  cpu_set_t bound;
  return sched_getaffinity(0, sizeof bound, &bound) == 0 ? CPU_COUNT(&bound) : 1;
}

// Starts the ranks, waits for them, and says what is left of the run when they fail.
int start_ranks(const TrainOptions& options, const RunConfig& config, int ranks) {
  check_divisible(config.recipe.batch, ranks);
  if (config.division->device == "cpu" && ranks > cores_allowed())
    message("note    {} ranks share {} cores, and wait for each other more than they compute", ranks, cores_allowed());
  catch_interrupts();  // until the launcher does: from here on there is a directory to clear away
  const RunDirectory run = open_run(options, config);
  setenv(kRunVariable, run.path().c_str(), 1);
  return report_end(leaving_run(options, run, [&] {
    const InterruptsHeld held;
    return interrupted() ? 128 + interrupted() : launch_or_throw([] {}, {.num_processes = ranks});
  }));
}

// What `--resume` names, now and for the ranks: runs/latest may be another run at the next look.
TrainOptions with_run_resolved(TrainOptions options, bool is_rank) {
  if (options.resume.empty()) return options;
  const std::string held_by_launcher = is_rank ? variable(kRunVariable) : "";
  options.resume = held_by_launcher.empty() ? RunDirectory::open(options.resume).path().string() : held_by_launcher;
  return options;
}

// A rank that another launcher has started trains with all the others: their number is not an option of its own.
void check_launched(const Division& asked, const RankEnvironment& here) {
  const std::string launched = fmt::format("this is one of {} ranks, as {} says", here.size, here.source);
  if (asked.one_process() && here.size > 1)
    throw UsageError("--parallel {} is for one process, and {}; leave one of them out", asked.parallel, launched);
  if (!asked.one_process() && asked.ranks > 0 && asked.ranks != here.size)
    throw UsageError("--ranks is {}, and {}; leave --ranks out", asked.ranks, launched);
}

// Threads are counted at their first use. Our launcher has divided the cores already, by RINGGRAD_THREADS; mpirun and
// Slurm bind each rank to its own, or leave them all to all.
void share_cores(int ranks_here) {
  const int allowed = cores_allowed(),
            share = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_here);
  if (ranks_here > 1 && variable("RINGGRAD_THREADS").empty())
    setenv("RINGGRAD_THREADS", std::to_string(std::min(allowed, share)).c_str(), 1);
}

}  // namespace

int train(const TrainOptions& asked) {
  const RankEnvironment here = rank_environment();
  share_cores(here.local_size);
  check_resume(asked);
  const bool is_rank = !here.source.empty();
  const TrainOptions options = with_run_resolved(asked, is_rank);
  RunConfig config = configure(options);
  if (is_rank) check_launched(options.division, here);

  const std::optional<Division> before = config.division;
  const Division division = complete(options.division, before, is_rank);
  check_division(division);
  check_backend_of(division, options.backend);
  if (division.parallel == "dp" && division.device == "cpu" && variable("RINGGRAD_CPU_DEVICES").empty())
    setenv("RINGGRAD_CPU_DEVICES", fmt::format("{}", division.ranks).c_str(), 1);
  check_device("train", Device(division.device));
  if (!division.transport.empty()) setenv("RINGGRAD_TRANSPORT", division.transport.c_str(), 1);
  if (!options.checksums.empty()) setenv("RINGGRAD_CHECKSUMS", options.checksums.c_str(), 1);
  const bool meets_others = is_rank && !division.one_process();
  int ranks = ranks_for(division, config.recipe.batch);
  if (meets_others) ranks = here.size;
  config.division = settle(division, ranks);
  const bool left_open = division.parallel.empty() && division.ranks == 0 && Device(division.device).is_cpu();
  if (!is_rank && left_open && ranks == 1 && cpu_cores() > 1)
    message("note    one process trains: a batch of {} cannot be divided by two ranks", config.recipe.batch);
  if (!meets_others && ranks > 1) return start_ranks(options, config, ranks);

  if (before && *before != *config.division && here.rank == 0)
    message("note    the run began with {}; from here on {}", as_words(*before), as_words(*config.division));
  const Data data(config);  // before the ranks meet: what is missing here is missing for all of them
  if (meets_others) {
    int code = kOk;
    launch_or_throw([&] { code = train_as_rank(options, config, data); },
                    {.group = group_options_for(division.device, options.backend)});
    return code;
  }
  catch_interrupts();  // from here on there is a directory to clear away
  const RunDirectory run = open_run(options, config);
  return leaving_run(options, run, [&] { return train_rank(options, config, data, &run, nullptr); });
}

}  // namespace ringgrad::program
