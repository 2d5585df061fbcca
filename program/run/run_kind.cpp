#include "ringgrad/program/run/run_kind.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

namespace fs = std::filesystem;

namespace {

bool takes(const RunKind& wanted, const fs::path& directory) {
  const RunKind found = kind_of(directory);
  return !found.empty() && (wanted == kAnyRun || found == wanted);
}

// Returns the run with that number, or with the highest one if `wanted` is negative. Returns "" if
// there is none.
fs::path numbered_run(int wanted, const RunKind& kind) {
  std::pair<int, fs::path> newest{-1, ""};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kRuns, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto number = number_of_run(name);
    if (number && (wanted >= 0 ? *number == wanted : takes(kind, entry.path())))
      newest = std::max(newest, {*number, entry.path()});
  }
  return newest.second;
}

std::string latest_run(const RunKind& kind) {
  const fs::path latest = fs::path(kRuns) / "latest";
  if (takes(kind, latest)) return latest;
  const fs::path other = numbered_run(-1, kind);
  if (other.empty()) return latest;
  const RunKind newest = kind_of(latest);
  if (!newest.empty())
    message("note    the latest run is one of {}; of {} it is {}", newest, kind, other.string());
  return other;
}

}  // namespace

RunKind kind_of(const fs::path& directory) {
  std::error_code ignored;
  const fs::path file = directory / "config.json";
  if (!fs::exists(file, ignored))
    return fs::exists(directory / "measurements.json", ignored) ? kBenchDdpRun : kAnyRun;
  nlohmann::json config;
  try {
    config = json_if_whole(text_of(file));
  } catch (const Error&) {  // it cannot be read, which is reported where it is needed
  }
  // Other commands than `train` keep their settings under their names.
  if (config.is_object() && !config.contains("recipe"))
    for (const auto& [key, value] : config.items())
      if (value.is_object() && key != "division" && key != "images") return key;
  return kTrainingRun;  // a damaged one, too, which is reported where it is read
}

std::optional<int> number_of_run(const std::string& name) {
  const std::string digits = name.substr(0, name.find('-'));
  return digits.size() < 9 ? parse_number<int>(digits) : std::nullopt;
}

std::string find_run(const std::string& name, const RunKind& kind) {
  std::error_code ignored;
  if (name.empty() || name.find('/') != std::string::npos || fs::exists(name, ignored)) return name;
  if (name == "latest") {
    const std::string latest = latest_run(kind);
    return fs::exists(latest, ignored) ? latest : name;
  }
  if (const fs::path run = fs::path(kRuns) / name; !kind_of(run).empty()) return run;
  const auto number = number_of_run(name);
  if (!number || name.find('-') != std::string::npos) return name;
  const fs::path run = numbered_run(*number, kind);
  return run.empty() ? name : run.string();
}

void check_kind(const fs::path& directory, const RunKind& wanted) {
  if (takes(wanted, directory)) return;
  const RunKind found = kind_of(directory);
  const std::string path = directory.string();
  std::error_code error;
  const bool is_there = fs::exists(directory / "config.json", error);
  CHECK_AS(IoError, is_there || !error, "run: ", path, " cannot be read: ", error.message());
  CHECK_AS(DataError, !found.empty(), "run: ", path, " is not a run directory: ",
           fs::exists(directory, error)
               ? "it has no config.json"
               : "there is no such folder, and no run of that name or number in runs/; `" +
                     program_command("runs") + "` lists them");
  std::string there = "`" + program_command("watch " + shell_word(path)) + "` shows its lines";
  if (fs::exists(directory / "samples-001.png", error))
    there += ", and its drawings are samples-*.png there";
  if (found == kBenchDdpRun)
    there = "`" + program_command("bench ddp --from " + shell_word(path)) +
            "` shows it again, and `report` alone draws it";
  if (found == kTrainingRun)
    there = "`" + program_command("report " + shell_word(path)) + "` is about it";
  throw DataError(
      fmt::format("run: {} is no run of `{}`, but of `{}`: {}", path, wanted, found, there));
}

}  // namespace ringgrad::program
