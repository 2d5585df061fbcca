// A page of `ringgrad explain`. The same calls write it to the terminal, at once and in 80 columns,
// and for a browser.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/program/report/html.h"
#include "ringgrad/program/report/svg.h"

namespace ringgrad::program {

class Page {
 public:
  Page(std::string topic, const std::string& title);

  void section(const std::string& title);
  void text(const std::string& paragraph);
  void table(const Row& header, const std::vector<Row>& rows);
  // Lanes of time, or bars from 0 on.
  void chart(const LaneChart& chart);
  // Shown as they are, but for lines that are too long.
  void listing(const std::string& lines);
  // Shown only in a browser, which scrolls a wide picture.
  void picture(const std::string& svg, const Table& numbers, const std::string& key = "");
  // The last words of a page: the place in the sources. `file` and `text` are literals, which
  // anchors.cmake finds.
  void read(const std::string& file, const std::string& text, const std::string& why);

  const std::string& topic() const { return topic_; }
  nlohmann::json facts;      // the numbers that the page shows, for --json
  std::string html() const;  // one file that asks for nothing else

 private:
  const std::string topic_;
  std::string title_;
  std::string html_;
};

}  // namespace ringgrad::program
