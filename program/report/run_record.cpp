#include "ringgrad/program/report/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/nn/safetensors_header.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/report/findings.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kMostBytes = 256 << 20;  // the limit of a file that is read whole

nlohmann::json parsed(const fs::path& file) {
  CHECK_AS(DataError, InputFile(file).size() <= kMostBytes, "run: cannot read ", file.string(),
           ": it is too large");
  return json_from(text_of(file));
}

void read_config_of(RunRecord& run) {
  const std::string file = run.path + "/config.json";
  try {
    run.config = parsed(file);
    OtherVersion other;
    run.recipe = recipe_from_json(group_of(run.config, "recipe"), other);
    other.lacking.clear();  // no training uses it here
    for (const std::string& sentence : sentences(other, "config.json"))
      run.notes.push_back(sentence);
    OtherVersion ignored;  // only further training needs all of it
    run.version = read_setting<std::string>(run.config, "version", "", ignored);
    run.data_dir = read_setting<std::string>(run.config, "data_dir", "", ignored);
    if (!run.config.contains("division")) return;
    const auto& parallel_config = group_of(run.config, "division");
    run.ranks = read_setting(parallel_config, "ranks", 1, ignored);
    run.parallel = read_setting<std::string>(parallel_config, "parallel",
                                             run.ranks > 1 ? "ddp" : "none", ignored);
    run.transport = read_setting<std::string>(parallel_config, "transport", "", ignored);
    run.device = read_setting<std::string>(parallel_config, "device", "cpu", ignored);
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(fmt::format("run: {} is damaged: {}", file, without_number(error)));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("run: {} lacks what a run needs: {}", file, without_number(error)));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {  // UsageError: a value that cannot be
    throw DataError(fmt::format("run: {} is not valid: {}", file, error.what()));
  }
}

std::optional<double> comm_wait_in(const nlohmann::json& json) {
  const auto found = json.find("waiting_for_communication");
  return found == json.end() ? std::nullopt : std::optional(found->get<double>());
}

// A run that was killed and resumed has some steps twice. The newer ones count.
void take_norms(RunRecord& run, const nlohmann::json& line, int64_t step) {
  for (auto& [layer, norms] : run.gradient_norms)
    while (!norms.empty() && norms.back()[0] >= static_cast<double>(step)) norms.pop_back();
  if (!line.contains("gradient_norms")) return;
  for (const auto& [layer, norm] : line["gradient_norms"].get<std::map<std::string, double>>())
    run.gradient_norms[layer].push_back({static_cast<double>(step), norm});
}

void take_epoch(RunRecord& run, const nlohmann::json& json) {
  EpochLine line{json.at("epoch"), json.value("step", int64_t{0}), json.at("loss"),
                 json.value("test_loss", 0.0), json.at("test_accuracy")};
  line.images_per_second = json.value("images_per_second", 0.0);
  line.seconds = json.value("seconds", 0.0);
  line.data_wait = json.value("waiting_for_data", 0.0);
  line.comm_wait = comm_wait_in(json);
  line.validation = {json.value("validation_accuracy", -1.0), -json.value("validation_loss", 0.0)};
  CHECK_AS(DataError,
           line.epoch >= 1 && line.step >= 0 && line.test_accuracy >= 0 && line.test_accuracy <= 1,
           "this cannot be the line of an epoch");
  const int64_t expected = run.epochs.empty() ? 1 : run.epochs.back().epoch + 1;
  if (line.epoch > expected && !run.has_preset())  // a speedrun has a line for the last one
    run.notes.push_back(
        line.epoch == expected + 1
            ? fmt::format("metrics.jsonl: epoch {} has no line", expected)
            : fmt::format("metrics.jsonl: epochs {} to {} have no line", expected, line.epoch - 1));
  take_norms(run, json, line.step);
  run.epochs.push_back(line);
}

void take_step(RunRecord& run, const nlohmann::json& json) {
  StepLine line{json.at("step"), json.value("loss", double{NAN}),
                json.value("images_per_second", 0.0), json.value("waiting_for_data", 0.0),
                comm_wait_in(json)};
  CHECK_AS(DataError, line.step >= 1, "this cannot be the line of a step");
  while (!run.steps.empty() && run.steps.back().step >= line.step) run.steps.pop_back();
  take_norms(run, json, line.step);
  run.steps.push_back(line);
}

void read_metrics_of(RunRecord& run) {
  const fs::path file = fs::path(run.path) / "metrics.jsonl";
  std::istringstream in(fs::exists(file) ? text_of(file) : "");
  int number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (in.eof() && run.state == RunRecord::Running) break;  // it is being written
    try {
      const auto line = json_from(text);
      run.failure = line.value("failed", "");
      if (line.contains("epoch"))
        take_epoch(run, line);
      else if (run.failure.empty())
        take_step(run, line);
    } catch (const std::exception&) {
      run.notes.push_back(fmt::format("metrics.jsonl: line {} is damaged, and left out", number));
    }
  }
  if (run.epochs.empty() && run.state != RunRecord::Running)
    run.notes.push_back("metrics.jsonl has no whole epoch");
}

void read_summary_of(RunRecord& run) {
  const fs::path file = fs::path(run.path) / "summary.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    if (run.state != RunRecord::Running)
      run.notes.push_back(
          "there is no summary.json: the run was killed, or is of an older version");
    return;
  }
  try {
    run.take(summary_from_json(parsed(file)));
  } catch (const nlohmann::json::exception& error) {
    run.notes.push_back("summary.json is damaged, and left out: " + without_number(error));
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("summary.json is damaged, and left out: {}", error.what()));
  }
}

// Reads the step from the checkpoint, because lines are written later than checkpoints, and some
// runs have no lines.
void read_saved_step_of(RunRecord& run) {
  try {
    const InputFile file(fs::path(run.path) / "checkpoint.safetensors");
    const auto metadata = nn::read_safetensors_header(file).metadata;
    const auto progress = metadata.find("progress");
    if (progress != metadata.end()) json_from(progress->second).at("step").get_to(run.saved_step);
  } catch (const std::exception&) {
    // There is no summary, or it is damaged, which is reported where it is needed.
  }
}

}  // namespace

void RunRecord::take(RunSummary measured) {
  classes = measured.classes;
  confusion = measured.confusion;
  worst = measured.worst;
  summary = std::move(measured);
}

nlohmann::json RunRecord::told() const {
  nlohmann::json recipe = to_json(this->recipe);
  if (!has_preset()) return recipe;
  nlohmann::json own = {{"preset", config["preset"]}};
  for (const char* key : {"data", "model", "epochs", "dtype"}) own[key] = recipe[key];
  return own;
}

// The first of equals, as training keeps it.
const EpochLine& RunRecord::kept() const {
  if (recipe.keep != "best") return epochs.back();
  return *std::ranges::max_element(epochs, {}, &EpochLine::validation);
}

double RunRecord::images_per_second() const {
  if (summary && summary->images_per_second > 0) return summary->images_per_second;
  return epochs.empty() ? 0 : epochs.back().images_per_second;
}

double RunRecord::train_seconds() const {
  double seconds = 0;
  for (const EpochLine& epoch : epochs) seconds += epoch.seconds;
  return seconds > 0 ? seconds : summary ? summary->train_seconds : 0;
}

int64_t RunRecord::last_step() const {
  return std::max(
      {epochs.empty() ? 0 : epochs.back().step, steps.empty() ? 0 : steps.back().step, saved_step});
}

RunRecord read_run(const std::string& path) {
  RunRecord run;
  const RunDirectory directory = RunDirectory::open(path);
  run.path = directory.path().string();
  if (directory.in_use()) run.state = RunRecord::Running;
  read_config_of(run);
  read_metrics_of(run);
  read_summary_of(run);
  const bool unfinished = run.summary ? !run.summary->ended : run.epochs.empty();
  if (run.state == RunRecord::Running) {
    run.failure.clear();  // it is the failure of the call before
  } else if (!run.failure.empty()) {
    run.state = RunRecord::Failed;
    run.notes.push_back("the run failed: " + run.failure);
  } else if (unfinished) {
    run.state = RunRecord::Died;
  }
  if (!run.is_complete()) read_saved_step_of(run);
  if (run.state == RunRecord::Died)
    run.notes.push_back(fmt::format(
        "the run stopped without an error after step {}: it was killed, or the machine "
        "stopped{}",
        run.last_step(), run.saved_step > 0 ? "; it goes on with " + resume_of(run) : ""));
  return run;
}

std::time_t date_of(const std::string& run) {
  for (const char* file : {"/config.json", "/measurements.json"})
    if (struct stat status{}; stat((run + file).c_str(), &status) == 0) return status.st_mtime;
  return 0;
}

std::vector<Difference> differences(const RunRecord& a, const RunRecord& b) {
  const auto settings = [](const RunRecord& run) {
    std::map<std::string, std::string> all;
    const auto add = [&](const nlohmann::json& group) {
      for (const auto& [key, value] : group.items())
        all[key] = value.is_string() ? value.get<std::string>() : value.dump();
    };
    add(run.told());
    all.try_emplace("preset", "none");
    if (run.config.contains("division")) add(run.config["division"]);
    if (run.config.contains("seed")) all["seed"] = run.config["seed"].dump();
    all["version"] = run.version;
    if (const auto& s = run.summary) {
      all["machine"] = s->machine;
      all["commit"] = s->commit;
      all["threads"] = std::to_string(s->threads);
      all["workers"] = std::to_string(s->workers);
      if (!s->data_digest.empty()) all["data digest"] = s->data_digest;
    }
    return all;
  };
  const auto of_a = settings(a);
  const auto of_b = settings(b);
  std::vector<Difference> found;
  for (const auto& [key, value] : of_a)
    if (const auto other = of_b.find(key); other != of_b.end() && other->second != value)
      found.push_back({key, value, other->second});
  return found;
}

}  // namespace ringgrad::program
