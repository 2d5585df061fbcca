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
std::string html_key(const char* css_class);  // such a square

std::string html_table(const Row& header, const std::vector<Row>& rows);
// `wide` leaves room for pictures beside each other.
std::string html_document(const std::string& title, const std::string& body, bool wide = false);

}  // namespace ringgrad::program
