// A run of ranks: how a command that trains gets its settings, its directory, and its ranks, who all do the same.
//
//   int gan(const GanOptions& asked) {
//     GanOptions options = asked;
//     restore_settings("gan", options);  // a run that goes on keeps those that it began with
//     return train_on_ranks({.command = "gan", .config = {{"gan", settings_of(options)}}, …},
//                           [&](const RunDirectory* run, ProcessGroup* group) { … });
//   }
//
// What a command's settings are it says once, beside its options, to whoever visits them:
//
//   void each_setting(GanOptions& o, const auto& visit) { visit("batch", o.batch); visit("lr", o.lr); … }
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "ringgrad/models/program/run/run_directory.h"

namespace ringgrad::program {

struct RunOfRanks {
  std::string command;      // "gan"
  std::string name;         // of a new run's directory, runs/NNNN-name
  std::string out, resume;  // the directory of a new run, or "" ; of the run that goes on, or ""
  int ranks = 1, shards = 0;
  int64_t max_steps = 0;
  nlohmann::json config;  // config.json: the settings under the command's name, which must be the same on all ranks
};

// What each rank does; it returns the exit code. `run` is nullptr on ranks that write nothing; `group` where a process
// trains alone: of one rank, and without shards.
using TrainRank = std::function<int(const RunDirectory* run, ProcessGroup* group)>;

// Opens the run's directory, and calls `train` here, or in ranks that it starts and waits for; or in this one of the
// ranks that another launcher has started. Returns the exit code. A run that fails before its first checkpoint leaves
// no directory. Throws UsageError where there are fewer shards than ranks, OutOfStepError where ranks have other
// settings, and what `train` and RunDirectory throw.
int train_on_ranks(const RunOfRanks& job, const TrainRank& train);

// config.json of a run. Throws DataError unless it is one of this command.
nlohmann::json config_of_run(const std::string& command, const std::string& run);
// The path of the run that `resume` names, now and for the ranks: runs/latest may be another one at the next look.
std::string run_that_goes_on(const std::string& resume);

template <class Options>
nlohmann::json settings_of(Options options) {
  nlohmann::json all;
  each_setting(options, [&](const char* name, const auto& value) { all[name] = value; });
  return all;
}

// For a new run, nothing. What the run's config does not say stays as it is. Throws DataError as config_of_run(), and
// on a setting of another kind.
template <class Options>
void restore_settings(const std::string& command, Options& options) {
  if (options.resume.empty()) return;
  options.resume = run_that_goes_on(options.resume);
  const nlohmann::json config = config_of_run(command, options.resume);
  each_setting(options, [&](const char* name, auto& value) {
    try {
      if (config[command].contains(name)) config[command][name].get_to(value);
    } catch (const nlohmann::json::exception& error) {
      throw DataError(command + ": " + options.resume + "/config.json: " + name + ": " + error.what());
    }
  });
}

}  // namespace ringgrad::program
