// RunOfRanks: gives a command that trains its settings, its directory and its ranks.
//
//   int gan(const GanOptions& asked) {
//     GanOptions options = asked;
//     // A run that goes on keeps those that it began with.
//     restore_settings("gan", options);
//     return train_on_ranks({.kind = "gan", .config = {{"gan", settings_of(options)}}, …},
//                           [&](const RunDirectory* run, ProcessGroup* group) { … });
//   }
//
// A command lists its settings once, beside its options, for every function that visits them:
//
//   void each_setting(GanOptions& o, const auto& visit) {
//     visit("batch", o.batch);
//     visit("lr", o.lr);
//     …
//   }
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "ringgrad/program/command.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

struct RunOfRanks {
  // "gan"
  RunKind kind;
  // For a new run's directory, runs/NNNN-name.
  std::string name;
  // The directory of a new run, or "" ; of the run that goes on, or "".
  std::string out;
  std::string resume;
  int ranks = 1;
  int shards = 0;
  int64_t max_steps = 0;
  // Settings for config.json, under the command's name, which must be the same on all ranks.
  nlohmann::json config;
};

// The function that each rank runs; it returns the exit code. `run` is nullptr on ranks that write
// nothing. `group` is nullptr if a process trains alone: a run of one rank, without shards.
using TrainRank = std::function<int(const RunDirectory* run, ProcessGroup* group)>;

// Opens the run's directory, and calls `train` here, or in ranks that it starts and waits for; or
// in this one of the ranks that another launcher has started. Returns the exit code. A run that
// fails before its first checkpoint leaves no directory. Throws UsageError if there are fewer
// shards than ranks, OutOfStepError if ranks have other settings, and what `train` and
// RunDirectory throw.
int train_on_ranks(const RunOfRanks& job, const TrainRank& train);

// Returns a run's settings in config.json. Throws DataError if there are none.
nlohmann::json settings_of_run(const RunKind& kind, const std::string& run);
// Returns the path of the run that `resume` names, for this process and its ranks: runs/latest may
// name another run later. Throws DataError unless the run is of this kind.
std::string run_that_goes_on(const RunKind& kind, const std::string& resume);
// Says that the run is complete, and what to do instead of resuming it.
void nothing_to_go_on_with(const RunKind& kind, const std::string& run, const std::string& all);
// Says where a run stopped, and how to resume it, also in the document. `signal` stopped it; 0:
// --max-steps did.
void say_stopped(const RunKind& kind, const RunDirectory& run, const std::string& where, int signal,
                 nlohmann::json& document);
// Reports the settings that the run lacks. Throws DataError if a setting is unknown, because the
// run would not continue as it began.
void check_version(const OtherVersion& other, const std::string& run);

// Adds --shards and --resume, without the options that a run keeps from its beginning on.
void add_whole_life(CLI::App* app, const std::vector<const char*>& settings,
                    const char* shards_help, auto& o) {
  app->add_option("--shards", o.shards, shards_help)
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxShards));
  auto* resume = app->add_option("--resume", o.resume,
                                 "continue this run from its last checkpoint, bit for bit");
  for (const char* name : settings) resume->excludes(app->get_option(name));
  resume->excludes(app->get_option("--shards"));
}

template <class Options>
nlohmann::json settings_of(Options options) {
  nlohmann::json all;
  each_setting(options, [&](const char* name, const auto& value) { all[name] = value; });
  return all;
}

// Restores the settings of a resumed run. Does nothing for a new run. Throws DataError as the
// functions above do, and if a setting has another type.
template <class Options>
void restore_settings(const RunKind& kind, Options& options) {
  if (options.resume.empty()) return;
  options.resume = run_that_goes_on(kind, options.resume);
  const nlohmann::json settings = settings_of_run(kind, options.resume);
  OtherVersion other;
  note_unknown(settings, settings_of(options), "", other);
  try {
    each_setting(options, [&](const char* name, auto& value) {
      value = read_setting(settings, name, std::remove_cvref_t<decltype(value)>(value), other);
    });
  } catch (const UsageError& error) {
    throw DataError(
        fmt::format("{}: {}/config.json is not valid: {}", kind, options.resume, error.what()));
  }
  check_version(other, options.resume);
}

}  // namespace ringgrad::program
