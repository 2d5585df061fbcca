#include "ringgrad/program/explain/page.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/explain/anchor.h"

namespace ringgrad::program {
namespace {

int width_of_page() { return std::min(line_width(), 80); }

// Columns that UTF-8 takes: every character here is one wide.
int width_of(const std::string& text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string repeated(const char* glyph, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += glyph;
  return text;
}

const char* glyph_of(Span::Kind kind) {
  return kind == Span::Communicate ? "█" : kind == Span::Wait ? "░" : "▒";
}

std::string padded(const std::string& text, int width, bool to_the_right = false) {
  const std::string gap(static_cast<size_t>(std::max(0, width - width_of(text))), ' ');
  return to_the_right ? gap + text : text + gap;
}

}  // namespace

Page::Page(std::string topic, const std::string& title) : topic_(std::move(topic)) {
  result_in_colours(in_colour("1", topic_ + ": " + title));
  title_ = topic_ + ": " + title;
}

void Page::section(const std::string& title) {
  result_in_colours("\n" + in_colour("1", title));
  html_ += "<h2>" + escaped(title) + "</h2>\n";
}

void Page::text(const std::string& paragraph) {
  result_in_colours("");
  for (const std::string& line : wrapped(paragraph, width_of_page())) result_in_colours(line);
  html_ += "<p>" + prose(paragraph) + "</p>\n";
}

void Page::table(const Row& header, const std::vector<Row>& rows) {
  std::vector<int> widths;
  std::vector<bool> numbers;
  for (size_t c = 0; c < header.size(); ++c) {
    widths.push_back(width_of(header[c].text));
    numbers.push_back(c > 0);
    for (const Row& row : rows) {
      widths[c] = std::max(widths[c], width_of(row[c].marked()));
      if (!row[c].text.empty() && !row[c].is_number()) numbers[c] = false;
    }
  }
  const auto line = [&](const Row& row, const char* colour) {
    std::string text;
    for (size_t c = 0; c < row.size(); ++c) {
      const bool at_the_end = c + 1 == row.size() && !numbers[c];
      const std::string cell = padded(row[c].marked(), at_the_end ? 0 : widths[c], numbers[c]);
      const char* own = row[c].mark == Cell::Done ? "32" : row[c].mark == Cell::New ? "33" : colour;
      text += "  " + (own ? in_colour(own, cell) : cell);
    }
    while (text.ends_with(' ')) text.pop_back();
    result_in_colours(text);
  };
  result_in_colours("");
  line(header, "2");
  for (const Row& row : rows) line(row, nullptr);
  html_ += html_table({header, rows});
}

void Page::chart(const LaneChart& chart) {
  int labels = 0;
  int notes = 0;
  for (const Lane& lane : chart.lanes) {
    labels = std::max(labels, width_of(lane.label));
    notes = std::max(notes, width_of(lane.note));
  }
  const int width = std::max(10, width_of_page() - labels - notes - 6);
  result_in_colours("");
  for (const Lane& lane : chart.lanes) {
    std::string drawn;
    int at = 0;
    for (const Span& span : lane.spans) {
      const auto column = [&](double x) {
        return std::clamp(static_cast<int>(x / chart.end * width + 0.5), at, width);
      };
      const int from = column(span.begin);
      if (span.kind == Span::Wait && column(span.end) == from) continue;
      const int until = std::max(column(span.end), std::min(from + 1, width));
      drawn += repeated(" ", from - at);
      drawn += repeated(glyph_of(span.kind), until - from);
      at = until;
    }
    result_in_colours("  " + padded(lane.label, labels) + "  " + drawn +
                      (lane.note.empty() ? "" : " " + lane.note));
  }
  std::string key;
  for (const auto& [kind, meaning] : chart.key)
    key += fmt::format("{}{} {}", key.empty() ? "" : " · ", glyph_of(kind), meaning);
  for (const std::string& line : wrapped(key, width_of_page() - 2)) result_in_colours("  " + line);
  html_ += svg_lanes(chart);
}

void Page::listing(const std::string& lines) {
  result_in_colours("");
  std::istringstream in(lines);
  for (std::string whole; std::getline(in, whole);)
    for (const std::string& line : wrapped(whole, width_of_page() - 4, "    "))
      result_in_colours("  " + in_colour("36", line));
  html_ += "<pre>" + escaped(lines) + "</pre>\n";
}

void Page::picture(const std::string& svg, const Table& numbers, const std::string& key) {
  const std::string scrolled =
      "<div class=\"scroll wide\" tabindex=\"0\" role=\"group\" aria-label=\"Picture\">" + svg +
      "</div>\n";
  html_ += html_figure({scrolled, key, numbers});
}

void Page::read(const std::string& file, const std::string& text, const std::string& why) {
  const std::vector<Anchor>& all = anchors();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const Anchor& a) { return a.file == file && a.text == text; });
  ASSERT(found != all.end());
  const std::string place = fmt::format("{}:{}", file, found->line);
  // A function's name stands without its parenthesis.
  const std::string name = text.ends_with('(') ? text.substr(0, text.size() - 1) : text;
  result_in_colours("\nread  " + in_colour("1", place) + "\n      " + name);
  for (const std::string& line : wrapped(why, width_of_page() - 6))
    result_in_colours("      " + line);
  html_ += "<p>Read <b>" + escaped(place) + "</b>, <code>" + escaped(name) +
           "</code>: " + prose(why) + "</p>\n";
  facts["read"] = {{"file", file}, {"line", found->line}, {"text", text}};
}

std::string Page::html() const {
  return html_document(
      {.title = title_,
       .about = "Told by `ringgrad explain " + topic_ + "`, with the numbers of a run made for it.",
       .body = html_});
}

}  // namespace ringgrad::program
