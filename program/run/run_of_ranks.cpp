#include "ringgrad/program/run/run_of_ranks.h"

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/console/unread_output.h"

namespace ringgrad::program {
namespace {

void check_ranks_of(const RunOfRanks& job, int ranks) {
  if (job.shards > 0 && job.shards < ranks)
    throw UsageError("{}: --shards is {}, and there are {} ranks: each needs a shard at least",
                     job.kind, job.shards, ranks);
}

// The run's directory, for the process that opens it. It is removed if nothing was saved there.
class OwnRun {
 public:
  explicit OwnRun(const RunOfRanks& job)
      : run_(job.resume.empty() ? RunDirectory::create(job.out, job.name, job.config)
                                : RunDirectory::resume(job.resume, job.kind)),
        is_new_(job.resume.empty()) {}
  ~OwnRun() {
    if (is_new_ && !std::filesystem::exists(run_.checkpoint())) run_.discard();
  }
  OwnRun(const OwnRun&) = delete;
  const RunDirectory& operator*() const { return run_; }

 private:
  const RunDirectory run_;
  const bool is_new_;
};

// Data may lie elsewhere on another machine.
void check_same_settings(const RunOfRanks& job, ProcessGroup& group) {
  nlohmann::json settings = job.config.at(job.kind);
  settings.erase("data_dir");
  check_same_lines(group, job.kind, "settings",
                   {settings.dump(), fmt::format("--max-steps {}", job.max_steps)});
}

int train_here(const RunOfRanks& job, ProcessGroup* group, const TrainRank& train) {
  if (group) {
    check_ranks_of(job, group->size());
    check_same_settings(job, *group);
  }
  go_on_unread();
  catch_interrupts("note    this step is finished and saved; a second signal ends at once");
  if (group && !group->is_main_process()) {
    silence_console();
    return train(nullptr, group);
  }
  if (const std::string launchers = variable(kRunVariable); !launchers.empty()) {
    const RunDirectory run = RunDirectory::open(launchers, job.kind);
    return train(&run, group);
  }
  const OwnRun run(job);
  return train(&*run, group);
}

}  // namespace

int train_on_ranks(const RunOfRanks& job, const TrainRank& train) {
  const bool is_rank = !rank_environment().source.empty();
  if (!is_rank && job.ranks > 1) {
    check_ranks_of(job, job.ranks);
    const OwnRun run(job);
    auto environment = document_for_ranks();
    environment[kRunVariable] = (*run).path().string();
    return report_end(
        launch_or_throw([] {}, {.num_processes = job.ranks, .environment = environment}));
  }
  if (!is_rank && job.shards == 0) return train_here(job, nullptr, train);
  int code = kOk;  // shards need a group even if this process has all of them
  launch_or_throw([&] { code = train_here(job, &process_group(), train); });
  return code;
}

nlohmann::json settings_of_run(const RunKind& kind, const std::string& run) {
  const std::filesystem::path file = RunDirectory::open(run, kind).path() / "config.json";
  const auto config = json_if_whole(text_of(file));
  if (!config.is_object() || !config.contains(kind) || !config[kind].is_object())
    throw DataError(fmt::format("{}: {} lacks the settings of the run", kind, file.string()));
  return config[kind];
}

std::string run_that_goes_on(const RunKind& kind, const std::string& resume) {
  const std::string launchers = rank_environment().source.empty() ? "" : variable(kRunVariable);
  return launchers.empty() ? RunDirectory::open(resume, kind).path().string() : launchers;
}

void nothing_to_go_on_with(const RunKind& kind, const std::string& run, const std::string& all) {
  news("done    {} has {}: there is nothing to go on with", run, all);
  print_json({{"run", run}, {"command", kind}, {"finished", true}});
}

void say_stopped(const RunKind& kind, const RunDirectory& run, const std::string& where, int signal,
                 nlohmann::json& document) {
  const std::string resume =
      program_command(fmt::format("{} --resume {}", kind, shell_word(run.path().string())));
  news("stopped at {} · resume: {}", where, resume);
  document["resume"] = resume;
  if (signal > 0) document["stopped_by_signal"] = signal;
}

void check_version(const OtherVersion& other, const std::string& run) {
  const std::string file = run + "/config.json";
  if (!other.unknown.empty())
    throw DataError(fmt::format(
        "run: {} has what this version does not know: {}; the run would not go on as it began: "
        "continue it with the version that began it",
        file, fmt::join(other.unknown, ", ")));
  if (!rank_environment().source.empty()) return;  // the starter of the ranks has said it
  for (const std::string& sentence : sentences(other, file)) message("note    {}", sentence);
}

}  // namespace ringgrad::program
