// Curves in characters: a Braille pattern has two by four dots.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace ringgrad::program {

struct ScreenSize {
  int columns;
  int rows;
};
ScreenSize screen_size();  // the size of the terminal on stdout; 80 by 24 if there is none

struct BraillePlot {
  struct Curve {
    const char* colour;  // an SGR code, such as "36"
    std::vector<std::array<double, 2>> points;
  };
  std::vector<Curve> curves;  // those behind are drawn over those before
  int columns = 80;
  int rows = 8;
  bool logarithmic = false;  // y, where all of it is more than 0
  bool percent = false;      // y is a part of 1

  // Returns `rows` lines of `columns` columns, with y's labels. Returns none if there is nothing to
  // draw, or no room.
  std::vector<std::string> lines() const;
};

}  // namespace ringgrad::program
