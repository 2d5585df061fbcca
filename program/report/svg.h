// Pictures in SVG, for a page of html.h, whose style gives them their colours, in the light and in
// the dark.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace ringgrad::program {

// A line of a chart: pieces between 0 and the chart's end, and words behind them.
struct Span {
  // On the terminal ▒ █ ░; others ▒.
  enum Kind { Compute, Communicate, Wait, Data, Forward, Optimizer };
  double begin;
  double end;
  Kind kind = Compute;
  // It is shown under the pointer.
  std::string name = "";
};
struct Lane {
  std::string label;
  std::vector<Span> spans;
  std::string note = "";
};
// Draws lanes over time, or bars from 0 on.
std::string svg_lanes(const std::vector<Lane>& lanes, double end);

// Points (x, y) joined by a line; one of some on the same axes.
struct Curve {
  std::string label;
  std::vector<std::array<double, 2>> points;
  bool marked = false;  // a dot for each point
};
struct Axes {
  // what they are
  std::string x;
  std::string y;
  enum Scale { Tight, FromZero, Logarithmic } scale = Tight;  // the scale of y
  bool percent = false;                                       // y is a part of 1
};
// Returns "" if no curve has a point.
std::string svg_curves(const std::vector<Curve>& curves, const Axes& axes);

// Draws a row for each curve, on a logarithmic scale of its own, with its name and its first,
// highest and last value.
std::string svg_sparklines(const std::vector<Curve>& rows);

// Bars of equal widths between two ends of an axis.
std::string svg_histogram(const std::vector<int64_t>& bins, double low, double high,
                          const std::string& x);

// Draws counts of (row, column), [n · n], darker for a larger part of their row. Names and numbers
// are shown if they have room.
std::string svg_matrix(const std::vector<int64_t>& counts, const std::vector<std::string>& names);

}  // namespace ringgrad::program
