// `ringgrad train`
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/train_rank.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/report/findings.h"
#include "ringgrad/program/run/run_of_ranks.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {
namespace {

void check_resume(const TrainOptions& o) {
  const bool others = o.given.size() > o.given.count("--epochs");
  if (!o.resume.empty() && (others || o.seed || !o.out.empty() || !o.init.empty()))
    throw UsageError(
        "--resume takes model, data, seed, recipe and directory from the run, but for more "
        "--epochs; leave those options out, or train on with others: --init {}",
        shell_word(o.resume));
}

RunConfig fresh_config(const TrainOptions& options) {
  RunConfig config{make_recipe(options.recipe, options.given),
                   data_directory(options.data_dir),
                   options.seed.value_or(1),
                   {}};
  const Recipe& recipe = config.recipe;
  if (recipe.freeze != "none" && options.init.empty())
    throw UsageError("--freeze {} leaves weights as --init has them, and there is no --init",
                     recipe.freeze);
  if (!is_own_data(recipe.data)) config.facts = facts_of_dataset(recipe.data);
  config.init = options.init;
  return config;
}

RunConfig config_to_go_on_with(const std::string& resume) {
  const RunDirectory run = RunDirectory::open(resume);
  RunConfig config = read_config(run);
  if (!config.preset.empty())
    throw UsageError(
        "--resume: {} is a run of --preset {}, which keeps no checkpoint to go "
        "on from; begin another",
        run.path().string(), config.preset);
  check_version(config.other, run.path().string());
  return config;
}

// --resume RUN --epochs N: gives the run more epochs than it was begun with. config.json records
// the epoch of the change, because the learning rate follows the new number from there on.
void extend(const TrainOptions& options, RunConfig& config) {
  int64_t& epochs = config.recipe.epochs;
  const int64_t wanted = options.recipe.epochs;
  if (!options.given.contains("--epochs") || wanted == epochs) return;
  if (wanted < epochs)
    throw UsageError("--epochs is {}, and the run has {}; --resume can only add some", wanted,
                     epochs);
  const int64_t done = RunDirectory::open(options.resume).last_epoch();
  config.extended += fmt::format("{}{} to {} epochs after epoch {}",
                                 config.extended.empty() ? "" : ", ", epochs, wanted, done);
  epochs = wanted;
  check_recipe(config.recipe);
}

// Says that the run has been trained to its end. The run is not changed.
int say_finished(const RunDirectory& run) {
  const RunRecord record = read_run(run.path().string());
  news("done    {} has all its {}, {:.2f} % test accuracy; more --epochs train on", record.path,
       counted(record.recipe.epochs, "epoch"), 100 * record.accuracy());
  const std::string next =
      fmt::format("{} --epochs {}", resume_command(run), 2 * record.recipe.epochs);
  message("next    {}", next);
  print_json({{"run", record.path},
              {"finished", true},
              {"epochs", record.recipe.epochs},
              {"steps", record.last_step()},
              {"test_accuracy", record.accuracy()},
              {"next", next}});
  return kOk;
}

// Returns the configuration of the run, or the one with which it began. Its parallel_config is not
// settled yet.
RunConfig configure(const TrainOptions& options) {
  RunConfig config;
  if (options.resume.empty()) {
    config = fresh_config(options);
  } else {
    config = config_to_go_on_with(options.resume);
    extend(options, config);
    config.data_dir = directory_of_data(config.recipe.data, options.data_dir, config.data_dir);
  }
  // It is read again from elsewhere.
  config.data_dir = std::filesystem::absolute(config.data_dir).lexically_normal();
  return config;
}

RunDirectory open_run(const TrainOptions& options, const RunConfig& config) {
  if (!options.resume.empty()) return RunDirectory::resume(options.resume);
  return RunDirectory::create(
      options.out, fmt::format("{}-{}", name_for_directory(config.facts), config.recipe.model),
      to_json(config));
}

// Returns true if a run that was to go on has been refused, and has not changed.
bool is_refused(const TrainOptions& options, int code) {
  return (code == kBadData || code == kUsage) && !options.resume.empty();
}

// Called after a failure: says what is left of the run. Interrupted ranks have said it themselves,
// and an unreadable checkpoint is nothing to go on from.
void leave(const TrainOptions& options, const RunDirectory& run, int code, const std::string& why) {
  const bool failed = code < 128 && !is_refused(options, code);
  if (failed) run.note_failure(why);
  if (std::filesystem::exists(run.checkpoint()) && failed)
    complain(fmt::format("last checkpoint: {} · resume: {}", run.checkpoint().string(),
                         resume_command(run)));
  else if (options.resume.empty() && !std::filesystem::exists(run.checkpoint()))
    run.discard();
}

int leaving_run(const TrainOptions& options, const RunDirectory& run,
                const std::function<int()>& body) {
  try {
    const int code = body();
    if (code != kOk) leave(options, run, code, describe(code));
    return code;
  } catch (const std::exception& error) {
    leave(options, run, exit_code_of(std::current_exception()), error.what());
    throw;
  }
}

uint64_t hash_of(const Tensor& x) { return ringgrad::hash_of(x.raw_data(), x.nbytes()); }

// Ranks that another launcher has started may have different options, or files: that is found by
// these lines, not after an epoch.
std::vector<std::string> work_of(const TrainOptions& options, const RunConfig& config,
                                 const Data& data) {
  std::vector<std::string> lines = {
      fmt::format("--seed {}", config.seed), fmt::format("--max-steps {}", options.max_steps),
      fmt::format("--save-every {}", options.save_every),
      fmt::format("--trace-steps {}:{}", options.trace_steps.first, options.trace_steps.last)};
  for (const ParallelConfigField& field : parallel_config_fields())
    if (field.traits & ParallelConfigField::kSame) {
      const std::string words = field.words(*config.parallel_config);
      lines.push_back(words.empty() ? "no " + field.option() : words);
    }
  for (const ImageDataset* set : {&data.train_set, &data.test_set})
    lines.push_back(fmt::format("{} {} images ({:016x}) with labels ({:016x})", set->size(),
                                set == &data.train_set ? "training" : "test", hash_of(set->images),
                                hash_of(set->labels)));
  lines.push_back(fmt::format("images less {}, divided by {}", fmt::join(config.facts.mean, ", "),
                              fmt::join(config.facts.std, ", ")));
  const nlohmann::json recipe = to_json(config.recipe);
  for (const auto& [key, value] : recipe.items())
    lines.push_back(fmt::format("{} {}", key, value.dump()));
  return lines;
}

// This process is one of several ranks that a launcher has started.
int train_as_rank(const TrainOptions& options, const RunConfig& config, const Data& data) {
  ProcessGroup& group = process_group();
  RunConfig own = config;
  if (group.device().is_cuda()) own.parallel_config->device = str(group.device());
  check_same_lines(group, "train", "recipe", work_of(options, config, data));
  check_parts(*config.parallel_config, config.recipe, group.size());
  check_sync_bn(*config.parallel_config, data.train_set.size(), config.recipe.batch);
  if (!group.is_main_process()) return train_rank(options, own, data, nullptr, &group);
  const std::string launchers = variable(kRunVariable);
  const RunDirectory run =
      launchers.empty() ? open_run(options, config) : RunDirectory::open(launchers);
  const auto body = [&] { return train_rank(options, own, data, &run, &group); };
  if (launchers.empty()) return leaving_run(options, run, body);
  try {
    return body();
  } catch (const std::exception& error) {  // the launcher knows less of it
    if (!is_refused(options, exit_code_of(std::current_exception())))
      run.note_failure(error.what());
    throw;
  }
}

InitOptions group_of_ranks(const TrainOptions& options, const ParallelConfig& parallel_config) {
  InitOptions group = group_options_for(parallel_config.device, parallel_config.backend);
  if (!parallel_config.transport.empty()) group.transport = parallel_config.transport;
  if (!options.checksums.empty())
    group.checksums = options.checksums == "on"    ? Checksums::On
                      : options.checksums == "off" ? Checksums::Off
                                                   : Checksums::Auto;
  return group;
}

// The same in a job whose ranks may go and come: once for every generation of them, of whatever
// size.
int train_elastically(const TrainOptions& options, const RunConfig& config, const Data& data) {
  check_sync_bn(*config.parallel_config, data.train_set.size(), config.recipe.batch);
  std::vector<std::string> work = work_of(options, config, data);
  work.insert(work.begin(), "version " RINGGRAD_VERSION);
  ElasticJob job(work, group_of_ranks(options, *config.parallel_config));
  ElasticRun state{job};
  int code = kOk;
  (void)job.run([&](ProcessGroup& group) {
    RunConfig own = config;
    own.parallel_config->ranks = group.size();
    if (own.parallel_config->shards == 0) own.parallel_config->shards = group.size();
    std::optional<RunDirectory> run;
    if (group.is_main_process()) run = RunDirectory::open(variable(kRunVariable));
    code = train_rank(options, own, data, run ? &*run : nullptr, &group, &state);
  });
  return code;
}

// Returns the number of cores that this process may use.
int cores_allowed() {
  cpu_set_t bound;
  return sched_getaffinity(0, sizeof bound, &bound) == 0 ? CPU_COUNT(&bound) : 1;
}

// Starts the ranks, waits for them, and says what is left of the run if they fail.
int start_ranks(const TrainOptions& options, const RunConfig& config, int ranks) {
  check_parts(*config.parallel_config, config.recipe, ranks);
  if (config.parallel_config->device == "cpu" && ranks > cores_allowed())
    message("note    {} share {}, and wait for each other more than they compute",
            counted(ranks, "rank"), counted(cores_allowed(), "core"));
  catch_interrupts();  // until the launcher does: from here on there is a directory to clear away
  const RunDirectory run = open_run(options, config);
  auto environment = document_for_ranks();
  environment[kRunVariable] = run.path().string();
  return report_end(leaving_run(options, run, [&] {
    const InterruptsHeld held;
    const ElasticRange elastic = elastic_range(*config.parallel_config, ranks);
    return interrupted()
               ? 128 + interrupted()
               : launch_or_throw(
                     [] {},
                     {.num_processes = ranks, .elastic = elastic, .environment = environment});
  }));
}

// Resolves the runs that `--resume` and `--init` name, once for this process and its ranks.
// runs/latest would name another run later: the one that this training begins.
TrainOptions with_runs_resolved(TrainOptions options, bool is_rank) {
  const std::string held_by_launcher = is_rank ? variable(kRunVariable) : "";
  if (!options.resume.empty())
    options.resume = held_by_launcher.empty() ? RunDirectory::open(options.resume).path().string()
                                              : held_by_launcher;
  if (!options.init.empty() && !held_by_launcher.empty())
    options.init = read_config(RunDirectory::open(held_by_launcher)).init;
  else if (!options.init.empty())
    options.init = std::filesystem::weakly_canonical(find_run(options.init)).string();
  return options;
}

// A rank that another launcher has started trains with all the others: their number is not an
// option of its own.
void check_launched(const ParallelConfig& asked, const RankEnvironment& here) {
  const std::string launched =
      fmt::format("this is one of {}, as {} says", counted(here.size, "rank"), here.source);
  if (asked.one_process() && here.size > 1)
    throw UsageError("--parallel {} is for one process, and {}; leave one of them out",
                     asked.parallel, launched);
  if (in_elastic_job()) return;  // an elastic job has slots for more ranks than it begins with
  if (!asked.elastic.empty())
    throw UsageError(
        "--elastic is for ranks that ringgrad starts itself, and {}; leave one of them out",
        launched);
  if (!asked.one_process() && asked.ranks > 0 && asked.ranks != here.size)
    throw UsageError("--ranks is {}, and {}; leave --ranks out", asked.ranks, launched);
}

// Threads are counted at their first use. Our launcher has divided the cores already, by
// RINGGRAD_THREADS; mpirun and Slurm bind each rank to its own, or leave them all to all.
void share_cores(int ranks_here) {
  const int allowed = cores_allowed();
  const int share = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_here);
  if (ranks_here > 1 && variable("RINGGRAD_THREADS").empty())
    set_cpu_cores(std::min(allowed, share));
}

// SIGUSR1 asks for one more rank. It is held until the launcher reads it, so that it does not end
// the process that becomes a rank.
void hold_requests() {
  sigset_t requests;
  sigemptyset(&requests);
  sigaddset(&requests, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &requests, nullptr);
}

int train(const TrainOptions& asked) {
  for (const Preset& preset : presets())
    if (asked.preset == preset.name) return preset.train(asked);
  if (!asked.parallel_config.elastic.empty()) hold_requests();
  const RankEnvironment here = rank_environment();
  share_cores(here.local_size);
  check_resume(asked);
  const bool is_rank = !here.source.empty();
  const TrainOptions options = with_runs_resolved(asked, is_rank);
  RunConfig config = configure(options);
  if (is_rank) check_launched(options.parallel_config, here);

  const std::optional<ParallelConfig> before = config.parallel_config;
  ParallelConfig parallel_config = complete(options.parallel_config, before, is_rank);
  // 0 looks as if it was not given.
  if (options.named.contains("--zero")) parallel_config.zero = options.parallel_config.zero;
  if (!options.resume.empty() && RunDirectory::open(options.resume).has_all(config.recipe.epochs))
    return say_finished(RunDirectory::open(options.resume));
  check_parallel_config(parallel_config);
  if (!parallel_config.elastic.empty() && config.recipe.chooses())
    throw UsageError(
        "--keep {} --patience {} with --elastic {}: a rank that comes later knows of no "
        "best epoch; leave them out",
        config.recipe.keep, config.recipe.patience, parallel_config.elastic);
  (void)provider_named(config.recipe.provider, Device(parallel_config.device));
  if (parallel_config.parallel == "dp" && parallel_config.device == "cpu" &&
      variable("RINGGRAD_CPU_DEVICES").empty())
    set_cpu_devices(parallel_config.ranks);
  check_device("train", Device(parallel_config.device));
  const bool meets_others = is_rank && !parallel_config.one_process();
  int ranks = ranks_for(parallel_config, config.recipe.batch);
  if (meets_others && !in_elastic_job()) ranks = here.size;
  config.parallel_config = settle(parallel_config, ranks);
  const bool left_open = parallel_config.parallel.empty() && parallel_config.ranks == 0 &&
                         Device(parallel_config.device).is_cpu();
  if (!is_rank && left_open && ranks == 1 && cpu_cores() > 1)
    message("note    one process trains: a batch of {} cannot be divided by two ranks",
            config.recipe.batch);
  const bool starts_ranks = !meets_others && (ranks > 1 || !parallel_config.elastic.empty());
  // Prepares own pictures, and reports once what is wrong with them. If only the run's config.json
  // names the data, nothing is written beside them: the file may come from another user.
  const bool keep = options.resume.empty() || !options.data_dir.empty();
  std::optional<Data> data;
  if (!starts_ranks || is_own_data(config.recipe.data))
    data = read_data(config, options.init, keep);
  if (starts_ranks) {
    data.reset();
    return start_ranks(options, config, ranks);
  }
  if (before && *before != *config.parallel_config && here.rank == 0)
    message("note    the run began with {}; from here on {}", as_words(*before),
            as_words(*config.parallel_config));
  // The data were read before the ranks meet, so what is missing here is missing for all of them.
  if (in_elastic_job()) {
    int code = kOk;
    launch_or_throw([&] { code = train_elastically(options, config, *data); });
    return code;
  }
  // Shards need a group even if this process has all of them.
  if (meets_others || parallel_config.shards > 0) {
    if (!meets_others) catch_interrupts();
    int code = kOk;
    launch_or_throw([&] { code = train_as_rank(options, config, *data); },
                    {.group = meets_others ? group_of_ranks(options, parallel_config)
                                           : InitOptions{.backend = "ring"}});
    return code;
  }
  catch_interrupts();  // from here on there is a directory to clear away
  const RunDirectory run = open_run(options, config);
  return leaving_run(options, run,
                     [&] { return train_rank(options, config, *data, &run, nullptr); });
}

// An option for one hyperparameter; `o.given` remembers that it was used.
void add_recipe_option(CLI::App* app, const RecipeField& field, TrainOptions& o) {
  const std::string option = field.option();
  const auto add = [&]<class T>(T Recipe::*member) {
    const auto set = [&o, member, option](const T& value) {
      o.recipe.*member = value;
      o.given.insert(option);
    };
    if constexpr (std::is_same_v<T, bool>)
      app->add_flag_function(
          option + ",!--no-" + option.substr(2), [set](int64_t count) { set(count > 0); },
          field.help);
    else
      app->add_option_function<T>(option, set, field.help);
  };
  std::visit(add, field.member);
}

void add_parallel_config_option(CLI::App* app, const ParallelConfigField& field,
                                ParallelConfig& parallel_config) {
  const std::string option = field.option();
  const auto add = [&]<class T>(T ParallelConfig::*member) {
    T& value = parallel_config.*member;
    if constexpr (std::is_same_v<T, std::optional<bool>>) {
      app->add_flag_function(
          option + ",!--no-" + option.substr(2), [&value](int64_t count) { value = count > 0; },
          field.help);
    } else if constexpr (std::is_same_v<T, double>) {
      app->add_option_function<std::string>(
          option, [&value](const std::string& words) { value = bucket_mb_from(words); },
          field.help);
    } else {
      auto* added = app->add_option(option, value, field.help);
      if (field.traits & ParallelConfigField::kFromOne) added->check(CLI::Range(1, kMaxRanks));
    }
  };
  std::visit(add, field.member);
}

void add_options(CLI::App* app, TrainOptions& o) {
  auto* recipe =
      app->add_option_group("Recipe (defaults depend on model and data, and are printed)");
  for (const RecipeField& field : recipe_fields())
    add_recipe_option(field.name == "model" || field.name == "data" ? app : recipe, field, o);
  add_data_dir_option(app, o.data_dir);
  add_device_option(app, o.parallel_config.device);
  app->add_option_function<uint64_t>(
      "--seed", [&o](uint64_t seed) { o.seed = seed; },
      "of initialisation, order and augmentation (default: 1)");
  app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-model)");
  app->add_option("--resume", o.resume, "continue this run from its last checkpoint, bit for bit");
  app->add_option("--init", o.init, "begin with the weights of this run or .safetensors file");
  app->add_option("--workers", o.workers, "threads that prepare batches")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")
      ->check(kNotNegative);
  app->add_option("--save-every", o.save_every, "also save every so many steps")
      ->check(kNotNegative);
  std::vector<std::string> names;
  std::vector<std::string> helps;
  for (const Preset& preset : presets()) {
    names.push_back(preset.name);
    helps.push_back(fmt::format("{}: {}", preset.name, preset.help));
  }
  if (!names.empty())
    app->add_option("--preset", o.preset, fmt::format("{}", fmt::join(helps, "; ")))
        ->check(CLI::IsMember(names));
  app->add_option("--log-every", o.log_every, "also a line in metrics.jsonl every so many steps")
      ->check(kNotNegative);
  app->add_flag("--tensorboard", o.tensorboard,
                "write these lines for TensorBoard, too, in the run directory");
  app->add_option_function<std::string>(
      "--trace-steps", [&o](const std::string& words) { o.trace_steps = traced_steps_from(words); },
      "FIRST:LAST: trace.json and timeline.svg of these steps");
  app->add_flag("!--no-report", o.report, "leave out report.html, which is made at the end");
  for (const ParallelConfigField& field : parallel_config_fields()) {
    if (field.name == "sync_bn")  // it comes before these in --help, beside other options of ranks
      app->add_option("--checksums", o.checksums,
                      "of messages between ranks: on, off or auto (those over a network)")
          ->check(CLI::IsMember({"auto", "on", "off"}));
    if (!field.help.empty()) add_parallel_config_option(app, field, o.parallel_config);
  }
}

const Command kTrain(10, "train", "Train a model", train, add_options);

}  // namespace
}  // namespace ringgrad::program
