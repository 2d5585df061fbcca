// A page of `ringgrad explain`. The same calls write it to the terminal, at once and in 80 columns, and for a browser.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ringgrad::program {

struct Cell {
  enum Mark { None, New, Done };
  std::string text;
  Mark mark = None;  // on the terminal: + has just changed, * is complete; in a browser a colour

  Cell(std::string text_, Mark mark_ = None) : text(std::move(text_)), mark(mark_) {}
  Cell(const char* text_) : text(text_) {}
  bool is_number() const;  // such as stands in a column to the right
};
using Row = std::vector<Cell>;

// A line of a chart: pieces between 0 and the chart's end, and words behind them.
struct Span {
  enum Kind { Compute, Communicate, Wait };  // ▒ █ ░
  double begin, end;
  Kind kind = Compute;
};
struct Lane {
  std::string label;
  std::vector<Span> spans;
  std::string note = "";
};

class Page {
 public:
  Page(std::string topic, const std::string& title);

  void section(const std::string& title);
  void text(const std::string& paragraph);
  void table(const Row& header, const std::vector<Row>& rows);
  void chart(const std::vector<Lane>& lanes, double end);  // of time, or bars from 0 on
  void listing(const std::string& lines);                  // as they are, but for lines that are too long
  void picture(const std::string& svg);                    // in a browser only, which scrolls a wide one
  // The last words: where the sources say it. `file` and `text` are literals, which anchors.cmake finds.
  void read(const std::string& file, const std::string& text, const std::string& why);

  const std::string& topic() const { return topic_; }
  nlohmann::json facts;      // the numbers that the page shows, for --json
  std::string html() const;  // one file that asks for nothing else

 private:
  const std::string topic_;
  std::string html_;
};

// `text` with what HTML takes for its own replaced.
std::string escaped(const std::string& text);

}  // namespace ringgrad::program
