// The parts of a page as HTML, which any XML parser reads, too. No scripts, and nothing from
// elsewhere.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

struct Cell {
  enum Mark { None, New, Done };
  std::string text;
  Mark mark = None;  // "+" has just changed, "*" is complete; colours, too

  Cell(std::string text_, Mark mark_ = None) : text(std::move(text_)), mark(mark_) {}
  Cell(const char* text_) : text(text_) {}
  bool is_number() const;  // such as stands in a column to the right
  std::string marked() const;
};
using Row = std::vector<Cell>;

// Returns `text` with HTML's special characters replaced, and with bytes that no page may have
// spelt out.
std::string escaped(const std::string& text);

// The same with words in `backticks` as code, and the terminal's ▒ █ ░ as squares of the colours
// that pictures have.
std::string prose(const std::string& text);
// Returns such a square, which a screen reader calls by that name.
std::string html_square(const char* css_class, const std::string& name);

// A table whose first column names its rows. It scrolls by itself where it is too wide.
struct Table {
  Row header;
  std::vector<Row> rows;
};
std::string html_table(const Table& table);

// A picture in SVG, with the meaning of its colours and the numbers that it is drawn from: so it
// tells the same to those who do not see it.
struct Figure {
  std::string svg;
  std::string key = "";  // HTML
  Table numbers = {};
  bool open = false;  // the numbers are shown at once
};
std::string html_figure(const Figure& figure);

// Returns the colours of all pages as CSS variables, for light and dark.
const char* html_colours();

// Moves all headings of a part of a page one level down.
std::string one_level_down(std::string html);

// A page with what all pages have: its language and title, landmarks, links to its sections (each
// <h2>), the date, and colours for light, dark and paper.
struct Document {
  std::string title;
  std::string about = "";  // a sentence below the title
  std::string body = "";   // HTML, whose headings begin with <h2>
  bool wide = false;       // leaves room for pictures beside each other
};
std::string html_document(const Document& document);

}  // namespace ringgrad::program
