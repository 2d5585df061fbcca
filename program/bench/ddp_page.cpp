// The page that `ringgrad bench ddp` leaves in its run's directory.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/file.h"
#include "ringgrad/program/bench/ddp_explanation.h"
#include "ringgrad/program/bench/ddp_report.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/report/html.h"
#include "ringgrad/program/report/svg.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

const std::pair<Span::Kind, std::string> kStepParts[] = {{Span::Compute, "compute"},
                                                         {Span::Communicate, "exposed"},
                                                         {Span::Data, "copies"},
                                                         {Span::Wait, "waiting"}};

std::string ms_text(double value) { return fmt::format("{:.2f}", value); }
std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }
std::string titled(const char* words) { return fmt::format("<h2>{}</h2>\n", words); }

std::string bulleted(const json& lines) {
  std::string html = "<ul>";
  for (const json& line : lines) html += "<li>" + escaped(line.get<std::string>()) + "</li>\n";
  return html + "</ul>\n";
}

std::string where_the_time_goes(const json& document) {
  LaneChart chart{.name = "a step of each row, part by part",
                  .end = 1e-9,
                  .key = {std::begin(kStepParts), std::end(kStepParts)},
                  .unit = "ms"};
  Table table{{"ms", "compute", "exposed", "copies", "waiting", "step", "by the model"}, {}};
  for (const json& row : document.at("rows")) {
    const double step = row.at("step_ms");
    Lane lane{row.at("row").get<std::string>(), {}, ms_text(step) + " ms"};
    Row cells{row.at("row").get<std::string>()};
    double at = 0;
    for (const auto& [kind, name] : kStepParts) {
      const double part = row.at("parts_ms").at(name);
      lane.spans.push_back({at, at + part, kind, name});
      cells.push_back(ms_text(part));
      at += part;
    }
    cells.push_back(ms_text(step));
    cells.push_back(row.contains("predicted_ms") ? ms_text(row["predicted_ms"]) : "");
    chart.lanes.push_back(lane);
    table.rows.push_back(cells);
    chart.end = std::max(chart.end, at);
  }
  chart.numbers = table;
  json reasons = json::array();
  for (const auto& [row, why] : reasons_of(document)) reasons.push_back(row + ": " + why);
  return titled("Where a step's time goes") + svg_lanes(chart) +
         "<p>Compute: forward, backward and optimizer. Copies: between DataParallel's devices. "
         "Exposed: gradients on their way while nobody computes. Waiting: "
         "for slower ranks or replicas. Compute, exposed, copies and waiting are the step. "
         "By the model: what the step should take, as predicted from the costs below.</p>\n" +
         bulleted(reasons);
}

std::string how_fast(const json& document) {
  std::vector<Row> rows;
  for (const json& row : document.at("rows")) {
    std::string kept;
    std::string between;
    if (row.contains("kept_of_no_communication")) {
      kept = percent_text(row["kept_of_no_communication"]);
      between =
          percent_text(row["kept_interval"][0]) + " to " + percent_text(row["kept_interval"][1]);
    }
    std::vector<int64_t> memory = row.at("memory_bytes");
    std::sort(memory.rbegin(), memory.rend());
    rows.push_back({row.at("row").get<std::string>(), std::to_string(row.at("ranks").get<int>()),
                    with_commas(static_cast<int64_t>(row.at("images_per_second").get<double>())),
                    fmt::format("{:.2f}×", row.value("speed_up", 1.0)), kept, between,
                    human_bytes(memory.front()), human_bytes(memory.back()),
                    human_bytes(row.at("moved_bytes"))});
  }
  return titled("How fast") +
         html_table({{"", "ranks", "images/s", "speed-up", "kept", "quartiles", "memory: most",
                      "least", "moved in a step"},
                     rows}) +
         "<p>none: one process. dp: DataParallel, one process that computes on several devices. "
         "ddp: DistributedDataParallel, a process for each rank; ddp_no_overlap: the same, whose "
         "buckets wait until backward has ended. Speed-up: against none. Memory: of the rank or "
         "device with the most, and with the least. Kept: throughput, as a share of what the same "
         "ranks reach when "
         "they do not communicate; dp's, of what ddp's ranks reach. Quartiles: "
         "from the lowest of a round to the highest.</p>\n";
}

std::string clusters(const json& prediction) {
  std::vector<Row> rows;
  Curve kept{"kept", {}, true};
  for (const json& row : prediction.at("rows")) {
    rows.push_back({std::to_string(row.at("ranks").get<int>()),
                    std::to_string(row.at("nodes").get<int>()), ms_text(row.at("ring_ms")),
                    ms_text(row.at("direct_ms")), ms_text(row.at("hierarchy_ms")),
                    row.at("best").get<std::string>(), ms_text(row.at("step_ms")),
                    percent_text(row.at("kept_of_no_communication"))});
    kept.points.push_back(
        {row.at("ranks").get<double>(), row.at("kept_of_no_communication").get<double>()});
  }
  return titled("On a cluster, by the model") +
         html_table(
             {{"ranks", "nodes", "ring ms", "direct ms", "hierarchy ms", "best", "step ms", "kept"},
              rows}) +
         "<p>Ring, direct, hierarchy: three ways to average all gradients, explained below. Best: "
         "the fastest of them, with which the step is computed.</p>\n" +
         svg_curves({kept}, {"ranks", "kept", Axes::FromZero, true}) +
         bulleted(prediction.at("assumptions"));
}

}  // namespace

void write_ddp_page(const json& document, const std::filesystem::path& file) {
  const std::string title =
      fmt::format("{}, batch {}, {} ranks", document.at("model").get<std::string>(),
                  document.at("batch").get<int64_t>(), document.at("ranks").get<int>());
  std::string body;
  if (const std::string headline = headline_of(document); !headline.empty())
    body += fmt::format("<div class=\"verdict{}\">{} {} {}</div>\n",
                        is_decided(document) ? " healthy" : "", escaped(headline),
                        escaped(speed_ups_of(document)),
                        escaped(document.at("advice").at("sentence").get<std::string>()));
  body += how_fast(document) + where_the_time_goes(document);
  if (document.contains("costs"))
    body += titled("The model") + bulleted(document["costs"].at("assumptions"));
  if (document.contains("prediction")) body += clusters(document["prediction"]);
  body += titled("What was run") + "<p><code>" + escaped(document.value("command", "")) +
          "</code><br/>" + escaped(document.value("machine", "")) + " " +
          escaped(document.value("commit", "")) + "</p>\n";
  write_text(file, html_document({.title = title,
                                  .about = "DataParallel and DistributedDataParallel on the same "
                                           "batch and cores, by `ringgrad bench ddp`.",
                                  .body = body,
                                  .wide = true}));
}

}  // namespace ringgrad::program
