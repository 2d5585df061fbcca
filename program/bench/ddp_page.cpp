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

struct StepPart {
  const char* name;
  const char* css_class;
  Span::Kind kind;
};
constexpr StepPart kStepParts[] = {{"compute", "compute", Span::Compute},
                                   {"exposed", "communicate", Span::Communicate},
                                   {"copies", "data", Span::Data},
                                   {"waiting", "wait", Span::Wait}};

std::string ms_text(double value) { return fmt::format("{:.2f}", value); }
std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }
std::string titled(const char* words) { return fmt::format("<h2>{}</h2>\n", words); }

std::string bulleted(const json& lines) {
  std::string html = "<ul>";
  for (const json& line : lines) html += "<li>" + escaped(line.get<std::string>()) + "</li>\n";
  return html + "</ul>\n";
}

std::string where_the_time_goes(const json& document) {
  std::vector<Lane> lanes;
  std::vector<Row> rows;
  double longest = 1e-9;
  for (const json& row : document.at("rows")) {
    const double step = row.at("step_ms");
    Lane lane{row.at("row").get<std::string>(), {}, ms_text(step) + " ms"};
    Row cells{row.at("row").get<std::string>()};
    double at = 0;
    for (const auto& [name, css_class, kind] : kStepParts) {
      const double part = row.at("parts_ms").at(name);
      lane.spans.push_back({at, at + part, kind, fmt::format("{}: {} ms", name, ms_text(part))});
      cells.push_back(ms_text(part));
      at += part;
    }
    cells.push_back(ms_text(step));
    cells.push_back(row.contains("predicted_ms") ? ms_text(row["predicted_ms"]) : "");
    lanes.push_back(lane);
    rows.push_back(cells);
    longest = std::max(longest, at);
  }
  std::string legend = "<p>";
  for (const auto& [name, css_class, kind] : kStepParts)
    legend += "<span class=\"key\">" + html_key(css_class) + " " + name + "</span> ";
  json reasons = json::array();
  for (const auto& [row, why] : reasons_of(document)) reasons.push_back(row + ": " + why);
  return titled("Where a step's time goes") + svg_lanes(lanes, longest) + legend + "</p>\n" +
         html_table({"ms", "compute", "exposed", "copies", "waiting", "step", "by the model"},
                    rows) +
         "<p>Exposed: gradients on their way while nobody computes. Waiting: "
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
         html_table({"", "ranks", "images/s", "speed-up", "kept", "quartiles", "memory: most",
                     "least", "moved in a step"},
                    rows) +
         "<p>Kept: throughput, as a share of what the same ranks reach when "
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
             {"ranks", "nodes", "ring ms", "direct ms", "hierarchy ms", "best", "step ms", "kept"},
             rows) +
         svg_curves({kept}, {"ranks", "kept", Axes::FromZero, true}) +
         bulleted(prediction.at("assumptions"));
}

}  // namespace

void write_ddp_page(const json& document, const std::filesystem::path& file) {
  const std::string title =
      fmt::format("{}, batch {}, {} ranks", document.at("model").get<std::string>(),
                  document.at("batch").get<int64_t>(), document.at("ranks").get<int>());
  std::string body = "<h1>" + escaped(title) + "</h1>\n";
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
  const std::string html = html_document(title, body, true);
  write_text(file, html);
}

}  // namespace ringgrad::program
