#include "ringgrad/models/program/run/run_of_ranks.h"

#include <cstdlib>
#include <fstream>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

void check_ranks_of(const RunOfRanks& job, int ranks) {
  if (job.shards > 0 && job.shards < ranks)
    throw UsageError("{}: --shards is {}, and there are {} ranks: each needs a shard at least", job.command, job.shards,
                     ranks);
}

// The run's directory, for the process that opens it; taken back where nothing was saved there.
class OwnRun {
 public:
  explicit OwnRun(const RunOfRanks& job)
      : run_(job.resume.empty() ? RunDirectory::create(job.out, job.name) : RunDirectory::resume(job.resume)),
        is_new_(job.resume.empty()) {
    if (is_new_) run_.write_config(job.config);
  }
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
  nlohmann::json settings = job.config.at(job.command);
  settings.erase("data_dir");
  check_same_lines(group, job.command.c_str(), "settings",
                   {settings.dump(), fmt::format("--max-steps {}", job.max_steps)});
}

int train_here(const RunOfRanks& job, ProcessGroup* group, const TrainRank& train) {
  if (group) {
    check_ranks_of(job, group->size());
    check_same_settings(job, *group);
  }
  catch_interrupts("note    this step is finished and saved; a second signal ends at once");
  if (group && !group->is_main_process()) {
    silence_console();
    return train(nullptr, group);
  }
  if (const std::string launchers = variable(kRunVariable); !launchers.empty()) {
    const RunDirectory run = RunDirectory::open(launchers);
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
    setenv(kRunVariable, (*run).path().c_str(), 1);
    return report_end(launch_or_throw([] {}, {.num_processes = job.ranks}));
  }
  if (!is_rank && job.shards == 0) return train_here(job, nullptr, train);
  int code = kOk;  // shards have a group also where this process has all of them
  launch_or_throw([&] { code = train_here(job, &process_group(), train); });
  return code;
}

nlohmann::json config_of_run(const std::string& command, const std::string& run) {
  const std::filesystem::path file = RunDirectory::open(run).path() / "config.json";
  nlohmann::json config = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  if (!config.is_object() || !config.contains(command) || !config[command].is_object())
    throw DataError(fmt::format("{0}: {1} is not of a run of `{0}`", command, file.string()));
  return config;
}

std::string run_that_goes_on(const std::string& resume) {
  const std::string launchers = rank_environment().source.empty() ? "" : variable(kRunVariable);
  return launchers.empty() ? RunDirectory::open(resume).path().string() : launchers;
}

}  // namespace ringgrad::program
