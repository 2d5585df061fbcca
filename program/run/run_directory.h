// RunDirectory: one directory per training run. It has config.json (the settings), metrics.jsonl
// (lines of epochs and steps), checkpoint.safetensors (to continue from) and model.safetensors (the
// result, which loads in PyTorch). runs/latest points to the newest.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/other_version.h"
#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/run/run_kind.h"

namespace ringgrad::program {

inline constexpr const char* kRuns = "runs";

// The process that starts the ranks makes the run's directory, and tells them its path in this
// variable.
inline constexpr const char* kRunVariable = "RINGGRAD_RUN";

// Makes a directory for the results of a measurement: `path`, or runs/NNNN-name with the next free
// number if `path` is empty. It is no run, and runs/latest stays. Throws IoError.
std::filesystem::path make_result_directory(const std::string& path, const std::string& name);

// Throws DataError if a link to a file leads out of the directory, or nowhere. The directory may
// come from another user, and writing through such a link would write elsewhere.
void check_links(const std::filesystem::path& directory);

// Throws UsageError if writing `out` would lose `in`, or what a run has measured or learnt.
void check_output(const std::filesystem::path& out, const std::filesystem::path& in = {});

class RunDirectory {
 public:
  // Makes `path`, or runs/NNNN-name with the next free number if `path` is empty, holds it, and
  // writes config.json; if that fails, nothing is left. No other process may train there until the
  // last copy of this object is gone. The directory may hold the remains of a run that stopped
  // before its first checkpoint. Throws UsageError if it holds a run, a training process, or a file
  // with one of a run's names. Throws IoError.
  static RunDirectory create(const std::string& path, const std::string& name,
                             const nlohmann::json& config);
  // Opens an existing run of a kind for reading, by its name or path; the run keeps its path
  // without links. Throws DataError if there is none.
  static RunDirectory open(const std::string& path, const RunKind& kind = kTrainingRun);
  // Opens an existing run to go on with, and holds it as create() does. Throws DataError, also as
  // check_links() does, and UsageError if a process trains there.
  static RunDirectory resume(const std::string& path, const RunKind& kind = kTrainingRun);

  // Returns true if a process trains there now.
  bool in_use() const;
  // Removes what create() has made unless something was measured. REQUIRES: there is no checkpoint.
  void discard() const;
  // Removes the files that a run of any kind writes, and the directory if nothing else is in it.
  // Returns the number of other files.
  int64_t remove() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint() const { return path_ / "checkpoint.safetensors"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  // The lines of metrics.jsonl that are of epochs.
  std::vector<nlohmann::json> epochs() const;

  void write_config(const nlohmann::json& config) const;
  // Throws IoError, and then leaves the file as it was. Removes a half-written line of a process
  // that was killed.
  void append_metrics(const nlohmann::json& line) const;
  // Records why the run has failed, as the last line of metrics.jsonl, unless there is one already
  // or nothing was measured. Never throws.
  void note_failure(const std::string& why) const;
  // Returns the last epoch that has a line in metrics.jsonl; 0 if none has.
  int64_t last_epoch() const;
  // Returns true if all epochs have a line, and the result is saved: there is nothing to go on
  // with.
  bool has_all(int64_t epochs) const;
  // Returns true if there is metrics.jsonl or summary.json: it can be reported without a model.
  bool has_measured() const;

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  void hold();
  void check_free() const;

  std::filesystem::path path_;
  bool made_ = false;  // by create()
  std::shared_ptr<FileDescriptor> held_;
};

// The contents of config.json: what is fixed for the whole life of a run, over any number of
// resumptions, and the parallel configuration with which it began. While the run trains,
// `parallel_config` is the current one.
struct RunConfig {
  Recipe recipe;
  std::string data_dir;
  uint64_t seed = 1;
  // settled; none: the run is from before it was recorded
  std::optional<ParallelConfig> parallel_config;
  DataFacts facts = {};  // the facts of the images; for own pictures known once they have been read
  std::string init = "";      // the initial weights, for a user who wants to begin with them again
  std::string preset = "";    // "speedrun", which is no recipe
  std::string extended = "";  // "4 to 8 epochs after epoch 4", by --resume
  OtherVersion other = {};    // settings of another version in the file
};

nlohmann::json to_json(const RunConfig& config);
// Throws DataError, naming the file, if a setting has an impossible value, or is missing and has no
// default.
RunConfig read_config(const RunDirectory& run);
// Called once nothing refuses the run that goes on: removes the failure at the end of
// metrics.jsonl, and records more epochs.
void note_resumption(const RunDirectory& run, const RunConfig& config);

}  // namespace ringgrad::program
