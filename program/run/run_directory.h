// One directory per training run: config.json (what was asked for), metrics.jsonl (lines of epochs
// and steps), checkpoint.safetensors (to continue from) and model.safetensors (the result, which
// loads in PyTorch). runs/latest points at the newest.
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

// The process that starts the ranks makes the run's directory, and tells them by this where it is.
inline constexpr const char* kRunVariable = "RINGGRAD_RUN";

// A directory for what a measurement has found: `path`, or runs/NNNN-name with the next free number
// if it is empty. It is no run, and runs/latest stays. Throws IoError.
std::filesystem::path make_result_directory(const std::string& path, const std::string& name);

// Throws DataError if a link to a file leads out of the directory, or nowhere. The directory may
// come from another user, and writing through such a link would write elsewhere.
void check_links(const std::filesystem::path& directory);

class RunDirectory {
 public:
  // Makes `path`, or runs/NNNN-name with the next free number if `path` is empty, and holds it. No
  // other process may train there until the last copy of this object is gone. The directory may
  // hold the remains of a run that stopped before its first checkpoint. Throws UsageError if it
  // holds a run, a training process, or a file with one of a run's names. Throws IoError.
  static RunDirectory create(const std::string& path, const std::string& name);
  // Opens an existing run of a kind for reading, by its name or path; the run keeps its path
  // without links. Throws DataError if there is none.
  static RunDirectory open(const std::string& path, const RunKind& kind = kTrainingRun);
  // An existing run, to go on with: held as by create(). Throws DataError, also as check_links()
  // does, and UsageError if a process trains there.
  static RunDirectory resume(const std::string& path, const RunKind& kind = kTrainingRun);

  // Returns true if a process trains there now.
  bool in_use() const;
  // Takes back what create() and write_config() have made, unless something was measured. REQUIRES:
  // no checkpoint.
  void discard() const;
  // Removes what a run of whatever kind writes, and the directory where nothing else is in it.
  // Returns how many other files there are.
  int64_t remove() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint() const { return path_ / "checkpoint.safetensors"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  // The lines of metrics.jsonl that are of epochs.
  std::vector<nlohmann::json> epochs() const;

  void write_config(const nlohmann::json& config) const;
  // Throws IoError; the file is as it was then. A half-written line, of a process that was killed,
  // goes.
  void append_metrics(const nlohmann::json& line) const;
  // Records why the run has failed, as the last line of metrics.jsonl, unless there is one already
  // or nothing was measured. Never throws.
  void note_failure(const std::string& why) const;
  // The last epoch that has a line in metrics.jsonl; 0: none has.
  int64_t last_epoch() const;
  // True if all have, and the result is saved: there is nothing to go on with.
  bool has_all(int64_t epochs) const;
  // True if there is metrics.jsonl or summary.json: something to report, though there is no
  // model.
  bool has_measured() const;

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  void hold();
  void check_free() const;

  std::filesystem::path path_;
  bool made_ = false;  // by create()
  std::shared_ptr<FileDescriptor> held_;
};

// config.json: what is fixed for the whole life of a run, over any number of resumptions, and how
// its work was divided when it began. While it is trained, `parallel_config` is how it is divided
// now.
struct RunConfig {
  Recipe recipe;
  std::string data_dir;
  uint64_t seed = 1;
  std::optional<ParallelConfig> parallel_config;  // settled; none: of a run from before it was kept
  DataFacts facts = {};  // the facts of the images; for own pictures known once they have been read
  std::string init = "";      // whose weights it began with, for who wants to begin so again
  std::string preset = "";    // "speedrun", which is no recipe
  std::string extended = "";  // "4 to 8 epochs after epoch 4", by --resume
  OtherVersion other = {};    // what the file has of another version
};

nlohmann::json to_json(const RunConfig& config);
// Throws DataError, naming the file, if a setting has an impossible value, or is missing and has no
// default.
RunConfig read_config(const RunDirectory& run);

}  // namespace ringgrad::program
