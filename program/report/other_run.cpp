#include "ringgrad/program/report/other_run.h"

#include <filesystem>
#include <sstream>

#include "ringgrad/core/base/file.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {
namespace {

std::string value_text(const nlohmann::json& value) {
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string what_was_measured(const std::string& path) {
  const auto results = json_if_whole(text_of(path + "/measurements.json"));
  if (!results.is_object()) return "measurements.json is damaged";
  std::string words;
  for (const char* key : {"model", "batch", "ranks", "device"})
    if (results.contains(key))
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", key, value_text(results[key]));
  return words;
}

}  // namespace

std::string as_pairs(const nlohmann::json& line) {
  std::string text;
  for (const auto& [key, value] : line.items())
    if (value.is_primitive())
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value_text(value));
  return text;
}

std::string OtherRun::summary() const {
  if (kind == kBenchDdpRun) return what_was_measured(path);
  if (!failure.empty()) return "failed: " + failure;
  std::string words = running ? "goes on" : lines.empty() ? "has no line" : "";
  if (!lines.empty()) words += (words.empty() ? "" : ", ") + as_pairs(lines.back());
  return words;
}

OtherRun read_other_run(const std::string& called, const RunKind& kind) {
  OtherRun run{find_run(called, kind), kind, false, {}, ""};
  check_kind(run.path, kind);
  if (kind == kBenchDdpRun) return run;
  const RunDirectory directory = RunDirectory::open(run.path, kind);
  run.path = directory.path().string();
  run.running = directory.in_use();
  const std::filesystem::path file = directory.path() / "metrics.jsonl";
  std::istringstream in(std::filesystem::exists(file) ? text_of(file) : "");
  for (std::string text; std::getline(in, text) && !in.eof();) {
    const auto line = json_if_whole(text);
    if (!line.is_object()) continue;
    run.failure = line.contains("failed") && line["failed"].is_string()
                      ? line["failed"].get<std::string>()
                      : "";
    if (run.failure.empty()) run.lines.push_back(line);
  }
  return run;
}

}  // namespace ringgrad::program
