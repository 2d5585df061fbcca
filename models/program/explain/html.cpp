#include "ringgrad/models/program/explain/html.h"

#include <algorithm>

#include <fmt/format.h>

namespace ringgrad::program {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #ddd; --a: #9ab8dd; --b: #d9822b; --c: #ccc;
        --new: #fdf0c4; --done: #cfeccf; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181c; --soft: #3a3f47; --a: #3f6ea5; --b: #d9822b; --c: #555b66; --new: #5a4a12;
          --done: #1e4d27; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 50em; margin: 2em auto;
       padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
td, th { padding: .15em .7em; border-bottom: 1px solid var(--soft); text-align: left; }
td.number { text-align: right; } td.new { background: var(--new); } td.done { background: var(--done); }
pre { background: color-mix(in srgb, var(--soft) 35%, transparent); padding: .7em 1em; overflow-x: auto;
      white-space: pre-wrap; }
svg { width: 100%; height: auto; margin: .5em 0; } .wide { overflow-x: auto; } .wide svg { width: auto; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.compute { fill: var(--a); } .communicate { fill: var(--b); } .wait { fill: var(--c); }
.line { stroke: var(--ink); fill: none; } .box { fill: var(--paper); stroke: var(--ink); }
)";

const char* css_class(Cell::Mark mark) { return mark == Cell::New ? "new" : mark == Cell::Done ? "done" : ""; }

const char* css_class(Span::Kind kind) {
  return kind == Span::Compute ? "compute" : kind == Span::Communicate ? "communicate" : "wait";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  return out;
}

std::string html_table(const Row& header, const std::vector<Row>& rows) {
  std::string html = "<table><tr>";
  for (const Cell& cell : header) html += "<th>" + escaped(cell.text) + "</th>";
  html += "</tr>\n";
  for (const Row& row : rows) {
    html += "<tr>";
    for (const Cell& cell : row)
      html += fmt::format("<td class=\"{} {}\">{}</td>", cell.is_number() ? "number" : "", css_class(cell.mark),
                          escaped(cell.text));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_chart(const std::vector<Lane>& lanes, double end) {
  constexpr double kLeft = 130, kWidth = 420, kRow = 26;
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 760 {}\" role=\"img\">\n", kRow * static_cast<double>(lanes.size()));
  double y = 0;
  for (const Lane& lane : lanes) {
    svg +=
        fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 17, escaped(lane.label));
    double right = 0;
    for (const Span& span : lane.spans) {
      right = std::max(right, span.end);
      svg += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"18\" rx=\"2\"/>\n",
                         css_class(span.kind), kLeft + span.begin / end * kWidth, y + 4,
                         std::max(1.0, (span.end - span.begin) / end * kWidth));
    }
    if (!lane.note.empty())
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", kLeft + right / end * kWidth + 6, y + 17,
                         escaped(lane.note));
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::string html_document(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
         "<title>" +
         escaped(title) + "</title><style>" + kStyle + "</style></head>\n<body>\n" + body + "</body></html>\n";
}

}  // namespace ringgrad::program
