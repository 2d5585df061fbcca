// `ringgrad report`
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"
#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/train/evaluation.h"

namespace ringgrad::program {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
};

constexpr size_t kMostRuns = 6;  // beside each other

// The test images of runs' data sets, each read once; a set that is missing costs a report only its
// pictures.
class TestSets {
 public:
  const ImageDataset* of(RunRecord& run) {
    const std::string key =
        fmt::format("{} {} {}", run.recipe.data, run.recipe.image_size, run.data_dir);
    if (const auto found = sets_.find(key); found != sets_.end())
      return found->second ? &*found->second : nullptr;
    std::optional<ImageDataset>& set = sets_[key];
    try {
      const DataFacts facts = read_config(RunDirectory::open(run.path)).facts;
      set = load_images(run.recipe.data, Split::Test, facts, run.recipe.skip_broken,
                        directory_of_data(run.recipe.data, "", run.data_dir));
    } catch (const Error& error) {
      run.notes.push_back(std::string("without pictures: ") + error.what());
    }
    return set ? &*set : nullptr;
  }

 private:
  std::map<std::string, std::optional<ImageDataset>> sets_;
};

// If a run has no summary, its model gives the test results, if there is one.
void test_again(RunRecord& run, const ImageDataset& set) {
  try {
    const SavedModel saved = load_model(run.path, "", "");
    const Evaluation found = evaluate(*saved.module, set, normalization_of(saved.facts), {});
    run.classes = set.classes;
    run.confusion = found.confusion;
    run.worst = found.worst;
  } catch (const std::exception& error) {
    run.notes.push_back(std::string("without a confusion matrix: ") + error.what());
  }
}

int report_other(const OtherReport& kind, const std::string& run, const ReportOptions& options) {
  options.out.empty() ? check_links(run) : check_output(options.out);
  const std::string out = options.out.empty() ? run + "/report.html" : options.out;
  const std::string said = kind.write(run, out);
  sentence("{}: {}", run, said);
  result("report  {}", out);
  print_json({{"file", out}, {"runs", {{{"run", run}, {"command", kind.kind}, {"said", said}}}}});
  return kOk;
}

// Throws DataError if a path is no run or is damaged, and IoError. Nothing is written then.
int report(const ReportOptions& options) {
  if (options.runs.size() > kMostRuns)
    throw UsageError("report: {} runs, expected at most {}; `runs` lists many", options.runs.size(),
                     kMostRuns);
  if (const std::string& name = options.runs[0]; options.runs.size() == 1 && name != "latest")
    for (const OtherReport& kind : other_reports())
      if (const std::string run = find_run(name); kind_of(run) == kind.kind)
        return report_other(kind, run, options);
  std::vector<RunRecord> records;
  for (const std::string& path : options.runs) records.push_back(read_run(path));
  options.out.empty() ? check_links(records[0].path) : check_output(options.out);
  TestSets sets;
  std::map<std::string, const ImageDataset*> set_of;
  nlohmann::json listed = nlohmann::json::array();
  for (RunRecord& run : records) {
    const ImageDataset* set = set_of[run.path] = sets.of(run);
    if (set && run.confusion.empty()) test_again(run, *set);
    const Verdict verdict = judge(run);
    sentence("{}: {} · {}", run.path, verdict.name, verdict.why);
    for (const std::string& note : run.notes) message("note    {}: {}", run.path, note);
    listed.push_back({{"run", run.path}, {"verdict", to_json(verdict)}, {"notes", run.notes}});
  }
  const std::filesystem::path out = options.out.empty()
                                        ? std::filesystem::path(records[0].path) / "report.html"
                                        : std::filesystem::path(options.out);
  const int64_t bytes =
      write_report(records, out, [&](const RunRecord& run) { return set_of[run.path]; });
  result("report  {} ({})", out.string(), human_bytes(bytes));
  print_json({{"file", out.string()}, {"bytes", bytes}, {"runs", listed}});
  return kOk;
}

void add_options(CLI::App* app, ReportOptions& o) {
  app->add_option("runs", o.runs, "runs of train, or one of bench ddp")->required();
  app->add_option("--out", o.out, "the file (default: report.html in the first run's directory)");
  app->footer("Example\n  " + program_command("report 1 2 --out both.html"));
}

const Command kReport(110, "report", "One HTML page about a run, or several side by side", report,
                      add_options);

}  // namespace
}  // namespace ringgrad::program
