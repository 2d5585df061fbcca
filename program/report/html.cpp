#include "ringgrad/program/report/html.h"

#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "ringgrad/distributed/failure.h"

namespace ringgrad::program {
namespace {

// Each colour is a variable, so that the test can compute what stands out from what. Paper is
// light.
constexpr const char* kColours = R"(
:root { --ink: #1a1a1a; --paper: #fff; --soft: #ddd; --fill: #f4f4f4; --new: #fdf0c4; --done: #cfeccf;
        --blue: #2b66b1; --orange: #b35900; --violet: #7a3fa0; --green: #1d7f4f; --pink: #b0215e;
        --teal: #00788a; --gray: #757575; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181c; --soft: #3a3f47; --fill: #23262c; --new: #5a4a12;
          --done: #1e4d27; --blue: #7fb2f0; --orange: #f0a050; --violet: #c79be8; --green: #63c794;
          --pink: #f08fb5; --teal: #4fc3d4; --gray: #8b929c; } }
)";

constexpr const char* kStyle = R"(
@media screen { :root { color-scheme: light dark; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 50em; margin: 2em auto; padding: 0 1em; overflow-wrap: break-word; }
body.wide-page { max-width: 84em; }
h1 { font-size: clamp(1.3em, 5vw, 2em); }
h1, .about, footer, code { overflow-wrap: anywhere; }
a { color: var(--blue); }
nav ul { display: flex; flex-wrap: wrap; gap: .2em 1.2em; padding: 0; list-style: none; }
footer { margin-top: 3em; border-top: 1px solid var(--soft); font-size: .9em; }
.scroll { overflow-x: auto; margin: 1em 0; }
.long { max-height: 32em; overflow-y: auto; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15em .5em; border-bottom: 1px solid var(--soft); text-align: left; }
@media (max-width: 60em) { td, th { padding: .15em .4em; } table { font-size: .92em; } }
figure td, figure th { padding: .1em .25em; } figure table { font-size: .9em; }
@media (max-width: 30em) {
  td, th, figure td, figure th { padding: .1em .2em; } table, figure table { font-size: .8em; } }
thead { background: var(--paper); } tbody th { font-weight: normal; }
.number { text-align: right; } td.number { white-space: nowrap; }
td.new { background: var(--new); } td.done { background: var(--done); }
pre { background: var(--fill); padding: .7em 1em; overflow-wrap: anywhere; white-space: pre-wrap; }
figure { margin: 1em 0; } summary { cursor: pointer; }
svg { max-width: 100%; height: auto; } .wide svg { max-width: none; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.compute { fill: var(--blue); } .communicate { fill: var(--orange); } .wait { fill: var(--gray); }
.data { fill: var(--violet); } .forward { fill: var(--teal); } .optimizer { fill: var(--green); }
.line { stroke: var(--ink); fill: none; } .box { fill: var(--paper); stroke: var(--ink); }
.grid { stroke: var(--soft); fill: none; } .curve { fill: none; stroke-width: 2; }
.dashed { stroke-dasharray: 6 4; }
.key { display: inline-block; margin-right: 1em; }
.runs { display: grid; gap: 0 2em;
        grid-template-columns: repeat(auto-fit, minmax(min(100%, 26em), 1fr)); }
.runs > section { min-width: 0; } .runs > .whole { grid-column: 1 / -1; }
.facts td, .facts th:not(:first-child) { text-align: right; }
.verdict { border-left: .4em solid var(--orange); padding: .3em 1em; margin: 1em 0;
           background: var(--new); overflow-wrap: anywhere; }
.verdict.healthy { border-color: var(--green); background: var(--done); }
.gallery { display: flex; flex-wrap: wrap; gap: .8em; padding: 0; list-style: none; }
.gallery li { width: 5.6em; font-size: .8em; overflow-wrap: anywhere; }
.gallery img { width: 100%; image-rendering: pixelated; background: #000; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; }
dd { margin: 0; overflow-wrap: anywhere; }
@media print {
  body, body.wide-page { max-width: none; margin: 0; font-size: 10pt; }
  nav { display: none; } .scroll, .long { overflow: visible; max-height: none; }
  details::details-content { content-visibility: visible; } summary { list-style: none; }
  figure .long { columns: 14em; }
  h2, h3 { break-after: avoid; } svg, tr, .verdict, .gallery li { break-inside: avoid; }
  svg, .verdict, td { print-color-adjust: exact; }
}
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
      html.replace(at, 3, html_square(colour, std::string(colour) + " colour"));
  for (size_t from = 0; (from = html.find('`', from)) != std::string::npos;) {
    const size_t to = html.find('`', from + 1);
    if (to == std::string::npos) break;
    html = html.substr(0, from) + "<code>" + html.substr(from + 1, to - from - 1) + "</code>" +
           html.substr(to + 1);
  }
  return html;
}

std::string html_square(const char* css_class, const std::string& name) {
  return fmt::format(
      "<svg width=\"10\" height=\"10\" viewBox=\"0 0 10 10\" role=\"img\"><title>{}</title>"
      "<rect class=\"{}\" width=\"10\" height=\"10\"/></svg>",
      escaped(name), css_class);
}

const char* html_colours() { return kColours; }

std::string Cell::marked() const { return text + (mark == Done ? "*" : mark == New ? "+" : ""); }

std::string html_table(const Table& table) {
  const auto& [header, rows] = table;
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
  std::string names;
  std::string head;
  for (size_t c = 0; c < header.size(); ++c) {
    const std::string& name = header[c].text;
    // A heading without words would be read out as one.
    head += name.empty()
                ? "<td></td>"
                : fmt::format("<th scope=\"col\" class=\"{}\">{}</th>", classes[c], escaped(name));
    if (!name.empty()) names += (names.empty() ? "" : ", ") + name;
  }
  constexpr size_t kLong = 40;
  std::string html = fmt::format(
      "<div class=\"scroll{}\" tabindex=\"0\" role=\"group\" aria-label=\"Table: {}\">"
      "<table><thead><tr>{}</tr></thead><tbody>\n",
      rows.size() > kLong ? " long" : "", escaped(names), head);
  for (const Row& row : rows) {
    html += "<tr>";
    for (size_t c = 0; c < row.size(); ++c)
      html += c == 0 && !row[c].text.empty()
                  ? fmt::format("<th scope=\"row\">{}</th>", escaped(row[c].marked()))
                  : fmt::format("<td class=\"{} {}\">{}</td>", classes[c], css_class(row[c].mark),
                                escaped(row[c].marked()));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string html_figure(const Figure& figure) {
  if (figure.svg.empty()) return "";
  return "<figure>\n" + figure.svg + (figure.key.empty() ? "" : "<p>" + figure.key + "</p>\n") +
         "<details" + (figure.open ? " open=\"open\"" : "") + "><summary>Numbers</summary>\n" +
         html_table(figure.numbers) + "</details></figure>\n";
}

std::string one_level_down(std::string html) {
  for (size_t at = 0; (at = html.find("h2>", at)) != std::string::npos; ++at)
    if (at > 0 && (html[at - 1] == '<' || html[at - 1] == '/')) html[at + 1] = '3';
  return html;
}

std::string html_document(const Document& document) {
  const std::string title = escaped(document.title);
  std::string links;
  std::string body = document.body;
  int number = 0;
  for (size_t at = 0; (at = body.find("<h2>", at)) != std::string::npos; ++at) {
    const std::string id = fmt::format("part{}", ++number);
    const std::string words = body.substr(at + 4, body.find("</h2>", at) - at - 4);
    links += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, words);
    body.replace(at, 4, fmt::format("<h2 id=\"{}\">", id));
  }
  if (number > 1)
    links = "<nav aria-label=\"Sections\"><ul>\n" + links + "</ul></nav>\n";
  else
    links.clear();
  const std::tm now = fmt::localtime(std::time(nullptr));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; img-src data:\"/>\n"
      "<title>{0}</title><style>{8}{1}</style></head>\n<body{2}>\n"
      "<header><h1>{0}</h1>\n<p class=\"about\">{3} Written <time datetime=\"{4:%FT%T}\">"
      "{4:%F %H:%M}</time>.</p></header>\n{5}<main>\n{6}</main>\n"
      "<footer><p>Made by ringgrad {7}. The numbers of each picture are below it.</p></footer>\n"
      "</body></html>\n",
      title, kStyle, document.wide ? " class=\"wide-page\"" : "", prose(document.about), now, links,
      body, RINGGRAD_VERSION, kColours);
}

}  // namespace ringgrad::program
