#include "ringgrad/program/report/html.h"

#include <algorithm>

#include <fmt/format.h>

#include "ringgrad/distributed/failure.h"

namespace ringgrad::program {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #ddd; --a: #9ab8dd; --b: #d9822b; --c: #ccc; --e: #cfdff2;
        --new: #fdf0c4; --done: #cfeccf; --p: #2b66b1; --q: #b85c00; --r: #7a3fa0; --s: #1d7f4f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181c; --soft: #3a3f47; --a: #3f6ea5; --b: #d9822b; --c: #555b66; --e: #6f9fd0; --new: #5a4a12;
          --done: #1e4d27; --p: #7fb2f0; --q: #f0a050; --r: #c79be8; --s: #63c794; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 50em; margin: 2em auto;
       padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
td, th { padding: .15em .7em; border-bottom: 1px solid var(--soft); text-align: left; }
td.number, th.number { text-align: right; } td.number, td:first-child { white-space: nowrap; } td.new { background: var(--new); } td.done { background: var(--done); }
pre { background: color-mix(in srgb, var(--soft) 35%, transparent); padding: .7em 1em; overflow-x: auto;
      white-space: pre-wrap; }
svg { max-width: 100%; height: auto; margin: .5em 0; } p svg { margin: 0; } .wide { overflow-x: auto; } .wide svg { max-width: none; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.compute { fill: var(--a); } .forward { fill: var(--e); } .data { fill: var(--r); } .optimizer { fill: var(--s); }
.communicate { fill: var(--b); } .wait { fill: var(--c); }
.line { stroke: var(--ink); fill: none; } .box { fill: var(--paper); stroke: var(--ink); }
.grid { stroke: var(--soft); fill: none; } .curve0, .curve1, .curve2, .curve3 { fill: none; stroke-width: 2; }
.curve0 { stroke: var(--p); } .curve1 { stroke: var(--q); } .curve2 { stroke: var(--r); } .curve3 { stroke: var(--s); }
.dot0 { fill: var(--p); } .dot1 { fill: var(--q); } .dot2 { fill: var(--r); } .dot3 { fill: var(--s); }
svg text.ink0 { fill: var(--p); } svg text.ink1 { fill: var(--q); } svg text.ink2 { fill: var(--r); }
svg text.ink3 { fill: var(--s); }
.key { white-space: nowrap; margin-right: 1em; }
.runs { display: grid; gap: 0 2em; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24em), 1fr)); }
.runs > section { min-width: 0; } .runs > .whole { grid-column: 1 / -1; }
.facts td:not(:first-child), .facts th:not(:first-child) { text-align: right; }
.verdict { border-left: .4em solid var(--b); padding: .3em 1em; background: var(--new); overflow-wrap: anywhere; }
.verdict.healthy { border-color: #3a9a4b; background: var(--done); }
.gallery { display: flex; flex-wrap: wrap; gap: .8em; } .gallery figure { margin: 0; width: 5.6em; font-size: .8em; }
.gallery img { width: 100%; image-rendering: pixelated; background: #000; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; } dd { margin: 0; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.3em, 5vw, 2em); }
body.wide-page { max-width: 76em; }
)";

const char* css_class(Cell::Mark mark) {
  return mark == Cell::New ? "new" : mark == Cell::Done ? "done" : "";
}

}  // namespace

bool Cell::is_number() const {
  const bool several = std::count(text.begin(), text.end(), ' ') > 1;
  return text == "-" ||
         (text.find_first_of("0123456789") <= 1 && !text.starts_with('#') && !several);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text))
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

std::string prose(const std::string& text) {
  static const std::pair<const char*, const char*> colours[] = {
      {"▒", "compute"}, {"█", "communicate"}, {"░", "wait"}};
  std::string html = escaped(text);
  for (const auto& [glyph, colour] : colours)
    for (size_t at = 0; (at = html.find(glyph, at)) != std::string::npos;)
      html.replace(at, 3, html_key(colour));
  for (size_t from = 0; (from = html.find('`', from)) != std::string::npos;) {
    const size_t to = html.find('`', from + 1);
    if (to == std::string::npos) break;
    html = html.substr(0, from) + "<code>" + html.substr(from + 1, to - from - 1) + "</code>" +
           html.substr(to + 1);
  }
  return html;
}

std::string html_key(const char* css_class) {
  return fmt::format(
      "<svg width=\"10\" height=\"10\" viewBox=\"0 0 10 10\"><rect class=\"{}\" width=\"10\" "
      "height=\"10\"/></svg>",
      css_class);
}

std::string Cell::marked() const { return text + (mark == Done ? "*" : mark == New ? "+" : ""); }

std::string html_table(const Row& header, const std::vector<Row>& rows) {
  std::vector<const char*> classes;  // a column of numbers stands to the right, its head too
  for (size_t c = 0; c < header.size(); ++c)
    classes.push_back(std::all_of(rows.begin(), rows.end(),
                                  [&](const Row& row) {
                                    return c < row.size() &&
                                           (row[c].is_number() || row[c].text.empty());
                                  }) &&
                              c > 0
                          ? "number"
                          : "");
  std::string html = "<table><tr>";
  for (size_t c = 0; c < header.size(); ++c)
    html += fmt::format("<th class=\"{}\">{}</th>", classes[c], escaped(header[c].text));
  html += "</tr>\n";
  for (const Row& row : rows) {
    html += "<tr>";
    for (size_t c = 0; c < row.size(); ++c)
      html += fmt::format("<td class=\"{} {}\">{}</td>", classes[c], css_class(row[c].mark),
                          escaped(row[c].marked()));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_document(const std::string& title, const std::string& body, bool wide) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'; img-src data:\"/>\n"
         "<title>" +
         escaped(title) + "</title><style>" + kStyle + "</style></head>\n<body" +
         (wide ? " class=\"wide-page\"" : "") + ">\n" + body + "</body></html>\n";
}

}  // namespace ringgrad::program
