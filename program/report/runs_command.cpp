// `ringgrad runs`
#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/report/other_run.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {

namespace fs = std::filesystem;

namespace {

struct RunsOptions {
  std::string directory = "runs";
  std::string sort = "name";  // accuracy, time, speed
};

// Of each hyperparameter that not all runs share, this run's value: "lr 0.05, batch 64".
std::vector<std::string> peculiarities(const std::vector<RunRecord>& runs) {
  std::map<std::string, std::map<std::string, int>> values;
  std::vector<nlohmann::json> recipes;
  for (const RunRecord& run : runs) {
    nlohmann::json recipe = run.told();
    recipe["ranks"] = run.ranks;
    recipe["parallel"] = run.parallel;
    for (const auto& [key, value] : recipe.items()) ++values[key][value.dump()];
    recipes.push_back(std::move(recipe));
  }
  std::vector<std::string> words;
  for (const nlohmann::json& recipe : recipes) {
    std::string text;
    for (const auto& [key, value] : recipe.items())
      if (values[key].size() > 1)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key,
                            value.is_string() ? value.get<std::string>() : value.dump());
    words.push_back(text);
  }
  return words;
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

// The runs of a directory; one that cannot be read is listed with the reason. Throws UsageError
// where there is no such order, DataError where there is no such directory.
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
  if (!records.empty())
    result("{:<{}}{:>10}{:>9}{:>10}{:>11}  verdict", "run", width, "test acc", "epochs", "img/s",
           "time");
  for (size_t i = 0; i < records.size(); ++i) {
    const RunRecord& run = records[i];
    const Verdict verdict = judge(run);
    const int64_t done = run.epochs_done();
    result("{:<{}}{:>10}{:>9}{:>10}{:>11}  {}", fs::path(run.path).filename().string(), width,
           run.epochs.empty() ? "" : fmt::format("{:.2f} %", 100 * run.accuracy()),
           fmt::format("{}/{}", done, run.recipe.epochs),
           with_commas(static_cast<int64_t>(run.images_per_second())),
           human_time(run.train_seconds()), verdict.name);
    if (!peculiar[i].empty()) result("  {}", peculiar[i]);
    listed.push_back({{"run", run.path},
                      {"model", run.recipe.model},
                      {"data", run.recipe.data},
                      {"ranks", run.ranks},
                      {"epochs", done},
                      {"test_accuracy", run.accuracy()},
                      {"images_per_second", run.images_per_second()},
                      {"seconds", run.train_seconds()},
                      {"differs", peculiar[i]},
                      {"verdict", to_json(verdict)},
                      {"notes", run.notes}});
  }
  for (const auto& run : unreadable)
    result("{}: {}", run["run"].get<std::string>(), run["error"].get<std::string>());
  if (!records.empty() && !others.empty()) result("");
  nlohmann::json list_of_others = nlohmann::json::array();
  for (const OtherRun& run : others) {
    result("{:<{}}  {:<11}{}", fs::path(run.path).filename().string(), width, run.kind,
           run.summary());
    list_of_others.push_back(
        {{"run", run.path}, {"command", run.kind}, {"summary", run.summary()}});
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

const Command kRuns(140, "runs", "The runs that there are, what they came to, and how they differ",
                    runs, add_options);

}  // namespace
}  // namespace ringgrad::program
