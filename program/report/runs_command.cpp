// `ringgrad runs`
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/report/other_run.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

namespace fs = std::filesystem;

namespace {

struct RunsOptions {
  std::string directory = "runs";
  std::string sort = "name";  // accuracy, time, speed
};

// Returns the value that comes more often than each other one, or "".
std::string usual_of(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  std::string usual;
  int most = 0;
  for (const auto& [value, count] : counts) {
    if (count == most) usual = "";
    if (count > most) usual = value;
    most = std::max(most, count);
  }
  return usual;
}

// Returns, for each run, the hyperparameters in which it differs from most runs: "lr 0.05, batch
// 64".
std::vector<std::string> peculiarities(const std::vector<RunRecord>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  std::vector<nlohmann::json> recipes;
  for (const RunRecord& run : runs) {
    nlohmann::json recipe = run.told();
    recipe["ranks"] = run.ranks;
    recipe["parallel"] = run.parallel;
    for (const auto& [key, value] : recipe.items()) values[key].push_back(value.dump());
    recipes.push_back(std::move(recipe));
  }
  std::map<std::string, std::string> usual;
  for (const auto& [key, all] : values) usual[key] = usual_of(all);
  std::vector<std::string> words;
  for (const nlohmann::json& recipe : recipes) {
    std::string text;
    for (const auto& [key, value] : recipe.items())
      if (value.dump() != usual[key])
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key,
                            value.is_string() ? value.get<std::string>() : value.dump());
    words.push_back(text);
  }
  return words;
}

// Returns "Nov 27 15:10", or only the day for another year.
std::string short_date(const std::string& run) {
  const std::time_t date = date_of(run);
  const std::tm day = fmt::localtime(date);
  const bool this_year = day.tm_year == fmt::localtime(std::time(nullptr)).tm_year;
  return date == 0   ? ""
         : this_year ? fmt::format("{:%b %d %H:%M}", day)
                     : fmt::format("{:%Y-%m-%d}", day);
}
std::string long_date(const std::string& run) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(date_of(run)));
}

void sort_by(std::vector<RunRecord>& runs, const std::string& order) {
  const std::map<std::string, double (*)(const RunRecord&)> keys = {
      {"accuracy", [](const RunRecord& r) { return -r.accuracy(); }},
      {"time", [](const RunRecord& r) { return r.train_seconds(); }},
      {"speed", [](const RunRecord& r) { return -r.images_per_second(); }},
      {"name", nullptr}};
  const auto key = keys.find(order);
  if (key == keys.end())
    throw UsageError("runs: --sort is '{}', expected name, accuracy, time or speed{}", order,
                     did_you_mean(order, {"name", "accuracy", "time", "speed"}));
  std::stable_sort(runs.begin(), runs.end(), [&](const RunRecord& a, const RunRecord& b) {
    return key->second ? key->second(a) < key->second(b) : a.path < b.path;
  });
}

// Lists the runs of a directory, and unreadable ones with the reason. Throws UsageError if there is
// no such order, DataError if there is no such directory.
int runs(const RunsOptions& options) {
  std::error_code error;
  CHECK_AS(DataError, fs::is_directory(options.directory, error), "runs: there is no directory ",
           options.directory, "; train makes runs/, and `runs DIRECTORY` lists another");
  std::vector<RunRecord> records;
  std::vector<OtherRun> others;
  nlohmann::json listed = nlohmann::json::array();
  nlohmann::json unreadable = nlohmann::json::array();
  for (const auto& entry :
       fs::directory_iterator(options.directory, fs::directory_options::skip_permission_denied)) {
    const RunKind kind = kind_of(entry.path());
    if (entry.is_symlink() || kind.empty()) continue;
    try {
      if (kind == kTrainingRun)
        records.push_back(read_run(entry.path().string()));
      else
        others.push_back(read_other_run(entry.path().string(), kind));
    } catch (const std::exception& problem) {
      unreadable.push_back({{"run", entry.path().string()}, {"error", problem.what()}});
    }
  }
  sort_by(records, options.sort);
  std::sort(others.begin(), others.end(),
            [](const OtherRun& a, const OtherRun& b) { return a.path < b.path; });
  const std::vector<std::string> peculiar = peculiarities(records);
  size_t width = 4;
  for (const RunRecord& run : records)
    width = std::max(width, fs::path(run.path).filename().string().size());
  for (const OtherRun& run : others)
    width = std::max(width, fs::path(run.path).filename().string().size());
  width = std::min<size_t>(width, 26);
  const std::vector<Column> columns = {
      {"begun", 14, 2}, {"test acc", 10}, {"epochs", 8, 1}, {"img/s", 9, 3}, {"time", 10, 4}};
  size_t longest = 0;
  for (const RunRecord& run : records) longest = std::max(longest, judge(run).name.size());
  const int beside = static_cast<int>(width + 2 + longest);
  if (!records.empty())
    result("{:<{}}{}  verdict", "run", width, row_of(columns, titles_of(columns), beside));
  for (size_t i = 0; i < records.size(); ++i) {
    const RunRecord& run = records[i];
    const Verdict verdict = judge(run);
    const int64_t done = run.epochs_done();
    const std::string row =
        row_of(columns,
               {short_date(run.path),
                run.epochs.empty() ? "" : fmt::format("{:.2f} %", 100 * run.accuracy()),
                fmt::format("{}/{}", done, run.recipe.epochs),
                with_commas(static_cast<int64_t>(run.images_per_second())),
                human_time(run.train_seconds())},
               beside);
    sentence("{:<{}}{}  {}", fs::path(run.path).filename().string(), width, row, verdict.name);
    if (!peculiar[i].empty()) sentence("  {}", peculiar[i]);
    listed.push_back({{"run", run.path},
                      {"begun", long_date(run.path)},
                      {"model", run.recipe.model},
                      {"data", run.recipe.data},
                      {"ranks", run.ranks},
                      {"epochs", done},
                      {"test_accuracy", run.accuracy_or_null()},
                      {"images_per_second", run.images_per_second()},
                      {"seconds", run.train_seconds()},
                      {"differs", peculiar[i]},
                      {"verdict", to_json(verdict)},
                      {"notes", run.notes}});
  }
  for (const auto& run : unreadable)
    sentence("{}: {}", run["run"].get<std::string>(), run["error"].get<std::string>());
  if (!records.empty() && !others.empty()) result("");
  nlohmann::json list_of_others = nlohmann::json::array();
  for (const OtherRun& run : others) {
    sentence("{:<{}}{:>14}  {:<11}{}", fs::path(run.path).filename().string(), width,
             short_date(run.path), run.kind, run.summary());
    list_of_others.push_back({{"run", run.path},
                              {"begun", long_date(run.path)},
                              {"command", run.kind},
                              {"summary", run.summary()}});
  }
  if (records.empty() && others.empty() && unreadable.empty())
    result("no runs in {}", options.directory);
  print_json({{"runs", listed}, {"others", list_of_others}, {"unreadable", unreadable}});
  return kOk;
}

void add_options(CLI::App* app, RunsOptions& o) {
  app->add_option("directory", o.directory, "where they lie")->capture_default_str();
  app->add_option("--sort", o.sort, "by name, accuracy, time or speed")->capture_default_str();
}

struct RemoveOptions {
  std::vector<std::string> runs;
};

// Removes runs with all files that a run writes. Other files, and folders that have some, stay.
// Throws DataError if a path is no run, and UsageError if the run goes on; nothing is removed then.
int remove_runs(const RemoveOptions& options) {
  std::vector<RunDirectory> all;
  for (const std::string& name : options.runs) {
    const std::string path = find_run(name, kAnyRun);
    all.push_back(RunDirectory::open(path, kind_of(path)));
    const RunDirectory& run = all.back();
    if (run.in_use())
      throw UsageError("runs rm: a process trains in {}; end it first", run.path().string());
    CHECK_AS(DataError,
             kind_of(path) == kBenchDdpRun || run.has_measured() || fs::exists(run.checkpoint()) ||
                 json_if_whole(text_of(run.path() / "config.json")).contains("recipe"),
             "runs rm: ", run.path().string(),
             " has a config.json, which is no run's, and nothing that a run measures");
  }
  nlohmann::json removed = nlohmann::json::array();
  for (const RunDirectory& run : all) {
    const int64_t left = run.remove();
    result("removed {}{}", run.path().string(),
           left > 0 ? fmt::format(", but for {} that no run writes", counted(left, "file")) : "");
    removed.push_back({{"run", run.path().string()}, {"left", left}});
  }
  print_json({{"removed", removed}});
  return kOk;
}

void add_remove_options(CLI::App* app, RemoveOptions& o) {
  app->add_option("runs", o.runs, "their names, numbers or directories")->required();
}

const Command kRuns(140, "runs", "The runs that there are, what they came to, and how they differ",
                    runs, add_options);
const Command kRunsRemove(141, "runs rm", "Remove runs", remove_runs, add_remove_options);

}  // namespace
}  // namespace ringgrad::program
