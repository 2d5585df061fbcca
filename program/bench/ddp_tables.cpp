// The tables of `ringgrad bench ddp`, for a terminal of 80 columns.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/program/bench/ddp_explanation.h"
#include "ringgrad/program/bench/ddp_report.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

constexpr int kColumns = 80;

// Returns "label   words that continue below the words".
std::vector<std::string> labelled(const std::string& label, const std::string& words) {
  const std::string gap(std::max<size_t>(label.size() + 1, 8), ' ');
  std::vector<std::string> lines = wrapped(words, kColumns - static_cast<int>(gap.size()));
  for (std::string& line : lines)
    line = (&line == &lines[0] ? label + gap.substr(label.size()) : gap) + line;
  return lines;
}
void note(const std::string& label, const std::string& words) {
  for (const std::string& line : labelled(label, words)) message(line);
}

double value_of(const json& row, const char* key) { return row.at(key).get<double>(); }

void print_speeds(const json& document) {
  result("{:<17}{:>5}{:>12}{:>9}{:>9}  {}", "", "ranks", "step", "img/s", "speed-up", "kept");
  for (const json& row : document.at("rows")) {
    std::string kept;
    if (row.contains("kept_of_no_communication"))
      kept = fmt::format(
          "{:.1f} % ({:.1f} to {:.1f})", 100 * value_of(row, "kept_of_no_communication"),
          100 * row["kept_interval"][0].get<double>(), 100 * row["kept_interval"][1].get<double>());
    result("{:<17}{:>5}{:>9.2f} ms{:>9}{:>8.2f}×  {}", row.at("row").get<std::string>(),
           row.at("ranks").get<int>(), value_of(row, "step_ms"),
           with_commas(static_cast<int64_t>(value_of(row, "images_per_second"))),
           row.value("speed_up", 1.0), kept);
  }
}

void print_parts(const json& document) {
  result("");
  result("{:<17}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}", "ms of a step", "compute", "exposed",
         "copies", "waiting", "in all", "by a model");
  for (const json& row : document.at("rows")) {
    const json& parts = row.at("parts_ms");
    result(
        "{:<17}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>12}",
        row.at("row").get<std::string>(), value_of(parts, "compute"), value_of(parts, "exposed"),
        value_of(parts, "copies"), value_of(parts, "waiting"), value_of(row, "step_ms"),
        row.contains("predicted_ms") ? fmt::format("{:.2f}", value_of(row, "predicted_ms")) : "");
  }
}

void print_memory(const json& document) {
  result("");
  result("{:<17}{:>12}{:>12}{:>19}{:>19}", "", "memory: most", "least", "moved in a step",
         "by the busiest");
  for (const json& row : document.at("rows")) {
    std::vector<int64_t> memory = row.at("memory_bytes");
    std::sort(memory.rbegin(), memory.rend());
    result("{:<17}{:>12}{:>12}{:>19}{:>19}", row.at("row").get<std::string>(),
           human_bytes(memory.front()), human_bytes(memory.back()),
           human_bytes(row.at("moved_bytes")), human_bytes(row.at("busiest_bytes")));
  }
}

void print_prediction(const json& prediction) {
  result("");
  result("{:>6}{:>6}{:>11}{:>11}{:>11}{:>11}{:>9}{:>12}", "ranks", "nodes", "ring", "direct",
         "hierarchy", "step", "kept", "img/s");
  for (const json& row : prediction.at("rows"))
    result("{:>6}{:>6}{:>8.2f} ms{:>8.2f} ms{:>8.2f} ms{:>8.2f} ms{:>7.1f} %{:>12}  {}",
           row.at("ranks").get<int>(), row.at("nodes").get<int>(), value_of(row, "ring_ms"),
           value_of(row, "direct_ms"), value_of(row, "hierarchy_ms"), value_of(row, "step_ms"),
           100 * value_of(row, "kept_of_no_communication"),
           with_commas(static_cast<int64_t>(value_of(row, "images_per_second"))),
           row.at("best").get<std::string>().substr(0, 1));
  result("each way for all gradients; the step is with the best, whose letter ends the row");
  for (const json& line : prediction.at("assumptions")) note("assumed", line.get<std::string>());
}

}  // namespace

void print_ddp(const json& document) {
  print_speeds(document);
  print_parts(document);
  print_memory(document);
  const auto reasons = reasons_of(document);
  if (!reasons.empty()) result("");
  for (const auto& [row, why] : reasons)
    for (const std::string& line : labelled(fmt::format("{:<16}", row), why)) result(line);
  const std::string advice = document.at("advice").at("sentence");
  for (const std::string& words : {headline_of(document), speed_ups_of(document), advice})
    for (const std::string& line : wrapped(words, kColumns)) result(line);
  if (document.contains("costs"))
    for (const json& line : document["costs"].at("assumptions"))
      note("model", line.get<std::string>());
  if (document.contains("prediction")) print_prediction(document["prediction"]);
  note("kept",
       "throughput, as a share of what the same ranks reach when they do not communicate "
       "(no_sync), measured in turn; dp's of what ddp's ranks reach. In brackets: "
       "from the lowest quartile of a round to the highest");
  note("exposed",
       "gradients on their way while nobody computes; waiting: for slower ranks or replicas. "
       "With copies and compute they are the step");
}

}  // namespace ringgrad::program
