// Pictures in SVG for a page of html.h, whose style gives them their colours, in the light and in
// the dark. Each is a figure with its numbers, or "" where there is nothing to draw.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/program/report/html.h"

namespace ringgrad::program {

// A line of a chart: pieces between 0 and the chart's end, and words behind them.
struct Span {
  // On the terminal ▒ █ ░; others ▒.
  enum Kind { Compute, Communicate, Wait, Data, Forward, Optimizer };
  double begin;
  double end;
  Kind kind = Compute;
  // It is shown under the pointer and in the table; without one the kind's.
  std::string name = "";
};
struct Lane {
  std::string label;
  std::vector<Span> spans;
  std::string note = "";
};
struct LaneChart {
  std::string name;  // such as a screen reader calls it
  std::vector<Lane> lanes = {};
  double end = 1;
  std::vector<std::pair<Span::Kind, std::string>> key = {};  // the meaning of each colour
  std::string unit = "";                                     // of the numbers in the table
  double units = 1;                                          // how many of it are 1 in a span
  std::optional<Table> numbers = std::nullopt;  // shown at once instead of the spans' own
};
// Draws lanes over time, or bars from 0 on.
std::string svg_lanes(const LaneChart& chart);

// Points (x, y) joined by a line; one of some on the same axes.
struct Curve {
  std::string label;
  std::vector<std::array<double, 2>> points;
  bool marked = false;  // a dot for each point
  bool dashed = false;
  size_t colour = 0;
};
struct Axes {
  // what they are
  std::string x;
  std::string y;
  enum Scale { Tight, FromZero, Logarithmic } scale = Tight;  // the scale of y
  bool percent = false;                                       // y is a part of 1
};
std::string svg_curves(const std::vector<Curve>& curves, const Axes& axes);

// Draws a row for each curve, on a logarithmic scale of its own, with its name and its first,
// highest and last value.
std::string svg_sparklines(const std::string& name, const std::vector<Curve>& rows);

// Bars of equal widths between two ends of an axis: how many steps lie between them.
std::string svg_histogram(const std::vector<int64_t>& bins, double low, double high,
                          const std::string& x);

// Draws counts of (label, answer), [n · n], darker for a larger part of their row. Names and
// numbers are shown if they have room.
std::string svg_matrix(const std::vector<int64_t>& counts, const std::vector<std::string>& names);

// Begins a picture of that size, with its name for those who do not see it.
std::string svg_begin(double width, double height, const std::string& name);

}  // namespace ringgrad::program
