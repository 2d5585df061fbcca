// RunRecord: everything that a run's directory says, for reports and comparisons. It takes what is
// there, and says what is missing.
#pragma once

#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/run/summary.h"

namespace ringgrad::program {

struct EpochLine {  // one line of metrics.jsonl; a value that an older version has not written is 0
  int64_t epoch = 0;
  int64_t step = 0;
  double loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  // These two are parts of the time.
  double images_per_second = 0;
  double seconds = 0;
  double data_wait = 0;
  std::optional<double> comm_wait = {};  // nothing: it was not measured
  // The accuracy and the negative loss on the images that are held out: the greater the better.
  std::pair<double, double> validation{-1, 0};
};

struct StepLine {  // with --log-every; a loss that is no number is NaN
  int64_t step = 0;
  double loss = NAN;
  double images_per_second = 0;
  double data_wait = 0;
  std::optional<double> comm_wait = {};
};

struct RunRecord {
  enum State {
    Ended,    // by itself, or after a signal
    Running,  // some process holds its directory
    Failed,   // with a word, `failure`
    Died,     // without: it was killed, or the machine stopped
  };

  std::string path;
  std::string version;
  // As it stands in config.json.
  nlohmann::json config;
  Recipe recipe;
  std::string data_dir;
  std::string parallel = "none";
  int ranks = 1;
  std::string transport;
  std::string device = "cpu";
  State state = Ended;
  std::string failure;
  std::vector<EpochLine> epochs;
  std::vector<StepLine> steps;
  // By layer: (step, norm).
  std::map<std::string, std::vector<std::array<double, 2>>> gradient_norms;
  // Missing for an older version's run, or one that was killed.
  std::optional<RunSummary> summary;
  // Results of the test at the end, as RunSummary has them.
  std::vector<std::string> classes;
  std::vector<int64_t> confusion;
  std::vector<ImageResult> worst;
  // The step of the checkpoint of a run that did not get to its end.
  int64_t saved_step = 0;
  // Says what is missing or damaged.
  std::vector<std::string> notes;

  void take(RunSummary measured);
  // A preset's steps are not measured one by one.
  bool has_preset() const { return config.contains("preset"); }
  // Returns its recipe; with a preset, only the settings that the preset leaves open.
  nlohmann::json told() const;

  // Returns the line of the epoch whose weights the run has: with --keep best the best one's, else
  // the last one's. REQUIRES: there is an epoch.
  const EpochLine& kept() const;
  double accuracy() const { return epochs.empty() ? 0 : kept().test_accuracy; }
  // The same for --json: null before an epoch has ended.
  nlohmann::json accuracy_or_null() const {
    return epochs.empty() ? nullptr : nlohmann::json(accuracy());
  }
  double images_per_second() const;
  double train_seconds() const;
  int64_t last_step() const;  // that a line or the checkpoint tells of
  int64_t epochs_done() const { return epochs.empty() ? 0 : epochs.back().epoch; }
  bool is_complete() const { return epochs_done() >= recipe.epochs; }
};

// Throws DataError if there is no config.json, or it cannot be read. Damaged lines of
// metrics.jsonl, and an invalid summary.json, are left out, with a note.
RunRecord read_run(const std::string& path);

// Returns the time when a run of any kind began, which is when its settings were written; 0 if
// unknown.
std::time_t date_of(const std::string& run);

// A setting in which two runs differ, in words: {"lr", "0.05", "0.1"}.
struct Difference {
  std::string what;
  std::string a;
  std::string b;
};
std::vector<Difference> differences(const RunRecord& a, const RunRecord& b);

}  // namespace ringgrad::program
