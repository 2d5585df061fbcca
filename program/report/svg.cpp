#include "ringgrad/program/report/svg.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/drawable.h"
#include "ringgrad/program/report/html.h"

namespace ringgrad::program {
namespace {

std::string title(const std::string& words) {
  return words.empty() ? "" : "<title>" + escaped(words) + "</title>";
}

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(words));
}

const char* css_class(Span::Kind kind) {
  constexpr const char* names[] = {"compute", "communicate", "wait",
                                   "data",    "forward",     "optimizer"};
  return names[kind];
}

// Returns the width of words in pixels. A letter that takes three bytes or more may be twice as
// wide as others.
double width_of(const std::string& words) {
  double width = 0;
  for (const char c : words)
    if ((c & 0xC0) != 0x80) width += static_cast<uint8_t>(c) >= 0xE0 ? 13.5 : 7.4;
  return width;
}

// Returns at most so many letters of a name.
std::string shortened(const std::string& name, int64_t letters) {
  size_t at = 0;
  for (; at < name.size(); ++at)
    if ((name[at] & 0xC0) != 0x80 && letters-- == 0) return name.substr(0, at) + "…";
  return name;
}

// Returns a number as a table has it.
std::string number(double value) {
  return std::abs(value) >= 1000 && std::abs(value) < 1e15 ? with_commas(std::llround(value))
                                                           : fmt::format("{:.4g}", value);
}

// The ends of an axis, which lie apart by more than rounding: so steps between them get somewhere.
struct Ends {
  double low;
  double high;
};
Ends apart(double low, double high) {
  const double least = 1e-9 * std::max(std::abs(low), std::abs(high));
  return {low, high - low > least ? high : low + std::max(1.0, least)};
}

// Returns four to eight round numbers within [low, high].
std::vector<double> ticks_between(double low, double high) {
  const double raw = (high - low) / 5;
  const double magnitude = std::pow(10, std::floor(std::log10(raw)));
  const double step = magnitude * (raw / magnitude > 5   ? 10
                                   : raw / magnitude > 2 ? 5
                                   : raw / magnitude > 1 ? 2
                                                         : 1);
  std::vector<double> ticks;
  for (double at = std::ceil(low / step) * step; at <= high + step * 1e-6 && ticks.size() < 12;
       at += step)
    ticks.push_back(std::abs(at) < step * 1e-6 ? 0 : at);
  return ticks;
}

// Returns 0.01, 0.1, 1 …, with steps between them if they are few, and without some if they are
// many.
std::vector<double> decades_between(double low, double high) {
  std::vector<double> ticks;
  const bool few = high / low < 300;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::floor(std::log10(high)));
  for (int power = first; power <= last; power += 1 + (last - first) / 9)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double at = digit * std::pow(10, power);
      if ((few || digit == 1) && at >= low && at <= high) ticks.push_back(at);
    }
  return ticks;
}

// A frame with axes, in which points of the data have places.
class Plot {
 public:
  static constexpr double kLeft = 50;
  static constexpr double kTop = 12;
  static constexpr double kWidth = 300;
  static constexpr double kHeight = 160;

  // `logarithmic`: y; bottom is more than 0 then.
  Plot(double left, double right, double bottom, double top, bool logarithmic = false)
      : logarithmic_(logarithmic), x_(apart(left, right)), y_(apart(bottom, top)) {}

  double x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * kWidth; }
  double y(double value) const {
    const double part = logarithmic_ ? (std::log(y_.high) - std::log(value)) /
                                           (std::log(y_.high) - std::log(y_.low))
                                     : (y_.high - value) / (y_.high - y_.low);
    return kTop + part * kHeight;
  }

  std::string begin(double right_margin, const std::string& label) const {
    return svg_begin(kLeft + kWidth + right_margin, kTop + kHeight + 42, label);
  }
  std::string x_axis(const std::string& name) const {
    std::string svg = text(kLeft + kWidth / 2, kTop + kHeight + 36, "middle", name);
    for (const double at : ticks_between(x_.low, x_.high))
      svg += text(x(at), kTop + kHeight + 17, "middle", fmt::format("{:.4g}", at));
    return svg;
  }
  std::string y_axis(bool percent) const {
    std::string svg;
    for (const double at :
         logarithmic_ ? decades_between(y_.low, y_.high) : ticks_between(y_.low, y_.high)) {
      svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, y(at),
                         kLeft + kWidth);
      svg += text(kLeft - 7, y(at) + 4, "end",
                  percent ? fmt::format("{:.4g} %", 100 * at) : fmt::format("{:.4g}", at));
    }
    return svg;
  }

 private:
  bool logarithmic_;
  Ends x_;
  Ends y_;
};

const char* colour_of(const Curve& curve) {
  constexpr const char* kColours[] = {"var(--blue)",  "var(--orange)", "var(--violet)",
                                      "var(--green)", "var(--pink)",   "var(--teal)"};
  return kColours[curve.colour % std::size(kColours)];
}

// Returns the points as rows. Of many points these are evenly spaced ones, and the last.
Table numbers_of(const std::vector<Curve>& curves, const Axes& axes) {
  constexpr size_t kMostRows = 200;
  Table table{{"", axes.x, axes.y}, {}};
  for (const Curve& curve : curves) {
    const size_t every = (curve.points.size() + kMostRows - 1) / kMostRows;
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const auto [x, y] = curve.points[i];
      if (i % every == 0 || i + 1 == curve.points.size())
        table.rows.push_back(
            {curve.label, fmt::format("{:.5g}", x),
             axes.percent ? fmt::format("{:.2f} %", 100 * y) : fmt::format("{:.4g}", y)});
    }
  }
  return table;
}

constexpr size_t kFewClasses = 20;

// All counts of few classes; of many all that are right, and the most frequent mistakes.
Table numbers_of_matrix(const std::vector<int64_t>& counts, const std::vector<std::string>& names) {
  const size_t n = names.size();
  if (n <= kFewClasses) {
    Table table{{"label, and answers"}, {}};
    for (const std::string& name : names) table.header.push_back(name);
    for (size_t r = 0; r < n; ++r) {
      table.rows.push_back({names[r]});
      for (size_t c = 0; c < n; ++c) table.rows.back().push_back(std::to_string(counts[r * n + c]));
    }
    return table;
  }
  constexpr size_t kMostMistakes = 100;
  std::vector<size_t> mistakes;
  Table table{{"label", "answer", "images"}, {}};
  const auto row = [&](size_t at) {
    table.rows.push_back({names[at / n], names[at % n], std::to_string(counts[at])});
  };
  for (size_t at = 0; at < counts.size(); ++at) {
    if (at / n == at % n)
      row(at);
    else if (counts[at] > 0)
      mistakes.push_back(at);
  }
  std::stable_sort(mistakes.begin(), mistakes.end(),
                   [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  mistakes.resize(std::min(mistakes.size(), kMostMistakes));
  for (const size_t at : mistakes) row(at);
  return table;
}

}  // namespace

std::string svg_begin(double width, double height, const std::string& name) {
  return fmt::format(
      "<svg width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">"
      "{2}\n",
      width, height, title(name));
}

std::string svg_lanes(const LaneChart& chart) {
  const auto part = [&](double at) {
    return std::clamp(drawable(at) / drawable(chart.end), 0.0, 1.0);
  };
  constexpr double kWidth = 350;
  constexpr double kRow = 26;
  double left = 60;
  double note = 0;
  bool bars = true;  // all of them begin at 0
  for (const Lane& lane : chart.lanes) {
    left = std::max(left, width_of(lane.label) + 12);
    note = std::max(note, width_of(lane.note) + 12);
    for (const Span& span : lane.spans) bars = bars && span.begin == 0;
  }
  if (chart.lanes.empty()) return "";
  const auto height = kRow * static_cast<double>(chart.lanes.size());
  const auto in_units = [&](double value) { return number(value * chart.units); };
  Table own{{"", "what"}, {}};
  if (!bars) own.header.push_back("from " + chart.unit);
  own.header.push_back((bars ? "" : "to ") + chart.unit);
  std::string svg = svg_begin(left + kWidth + note, height, chart.name);
  double y = 0;
  for (const Lane& lane : chart.lanes) {
    svg += text(left - 8, y + 17, "end", lane.label);
    double right = 0;
    for (const Span& span : lane.spans) {
      right = std::max(right, span.end);
      std::string name = span.name;
      for (const auto& [kind, meaning] : chart.key)
        if (name.empty() && kind == span.kind) name = meaning;
      Row row{lane.label, name};
      if (!bars) row.push_back(in_units(span.begin));
      row.push_back(in_units(span.end));
      own.rows.push_back(row);
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" "
          "y=\"{}\" width=\"{:.1f}\" height=\"18\" rx=\"2\">{}</rect>\n",
          css_class(span.kind), left + part(span.begin) * kWidth, y + 4,
          std::max(1.0, (part(span.end) - part(span.begin)) * kWidth),
          title(fmt::format("{}: {}{} {}", name, bars ? "" : in_units(span.begin) + " to ",
                            in_units(span.end), chart.unit)));
    }
    if (!lane.note.empty())
      svg += text(left + part(right) * kWidth + 6, y + 17, "start", lane.note);
    y += kRow;
  }
  std::string key;
  for (const auto& [kind, meaning] : chart.key)
    key += fmt::format("<span class=\"key\">{} {}</span> ",
                       html_square(css_class(kind), std::string("colour of ") + meaning),
                       escaped(meaning));
  return html_figure({.svg = svg + "</svg>\n",
                      .key = key,
                      .numbers = chart.numbers.value_or(own),
                      .open = chart.numbers.has_value()});
}

std::string svg_curves(const std::vector<Curve>& all, const Axes& axes) {
  const std::vector<Curve> curves = drawable(all);
  double left = INFINITY;
  double right = -INFINITY;
  double bottom = INFINITY;
  double top = -INFINITY;
  double margin = 12;
  for (const Curve& curve : curves) {
    if (!curve.points.empty()) margin = std::max(margin, width_of(curve.label) + 12);
    for (const auto& [x, y] : curve.points) {
      left = std::min(left, x);
      right = std::max(right, x);
      bottom = std::min(bottom, y);
      top = std::max(top, y);
    }
  }
  if (!std::isfinite(left + right + bottom + top)) return "";
  if (left == right) left = std::min(0.0, left - 1);
  const bool logarithmic = axes.scale == Axes::Logarithmic && bottom > 0;
  if (axes.scale == Axes::FromZero) bottom = std::min(bottom, 0.0);
  if (axes.scale == Axes::Tight && bottom == top) {
    bottom -= 0.1 * std::abs(bottom);
    top += 0.1 * std::abs(top);
  }
  const double room = axes.scale == Axes::Tight ? 0.04 * (top - bottom) : 0;
  const Plot plot(left, right, bottom - room, axes.percent ? std::min(1.0, top + room) : top + room,
                  logarithmic);
  std::string svg = plot.begin(margin, axes.y) + plot.y_axis(axes.percent) + plot.x_axis(axes.x);
  std::vector<std::pair<double, size_t>> names;  // the end of each curve, and its index
  constexpr double kLine = 15;
  for (size_t c = 0; c < curves.size(); ++c) {
    const Curve& curve = curves[c];
    if (curve.points.empty()) continue;
    std::string path;
    std::string dots;
    for (const auto& [x, y] : curve.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', plot.x(x), plot.y(y));
      if (curve.marked)
        dots += fmt::format("<circle fill=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\">{}</circle>\n",
                            colour_of(curve), plot.x(x), plot.y(y),
                            title(fmt::format("{} {:.4g}: {:.5g}", curve.label, x, y)));
    }
    svg += fmt::format("<path class=\"curve{}\" stroke=\"{}\" d=\"{}\"/>\n",
                       curve.dashed ? " dashed" : "", colour_of(curve), path) +
           dots;
    names.push_back({plot.y(curve.points.back()[1]) + 4, c});
  }
  // Writes a name beside each curve's end. From the lowest on, each is above the one before. Then,
  // from the highest on, each is below, so that none is above the picture.
  std::sort(names.rbegin(), names.rend());
  double beside = Plot::kTop + Plot::kHeight + 4 + kLine;
  for (auto& [end, c] : names) beside = end = std::min(end, beside - kLine);
  beside = Plot::kTop - kLine;
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    beside = name->first = std::max(name->first, beside + kLine);
  for (const auto& [end, c] : names)
    svg += fmt::format("<text style=\"fill: {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       colour_of(curves[c]), Plot::kLeft + Plot::kWidth + 6, end,
                       escaped(curves[c].label));
  return html_figure({svg + "</svg>\n", "", numbers_of(curves, axes)});
}

std::string svg_sparklines(const std::string& name, const std::vector<Curve>& all) {
  const std::vector<Curve> rows = drawable(all);
  constexpr double kWidth = 170;
  constexpr double kRow = 26;
  constexpr double kNumber = 64;
  constexpr double kHeight = 18;
  double left = 60;
  for (const Curve& row : rows) left = std::max(left, width_of(row.label) + 12);
  std::string svg =
      svg_begin(left + kWidth + 3 * kNumber + 12, kRow * static_cast<double>(rows.size()), name);
  Table numbers{{"", "first", "highest", "last"}, {}};
  double y = 0;
  for (const Curve& row : rows) {
    double low = INFINITY;
    double high = 0;
    for (const auto& [x, value] : row.points)
      if (value > 0) low = std::min(low, value), high = std::max(high, value);
    if (row.points.empty() || high <= 0) continue;
    const Ends x = apart(row.points.front()[0], row.points.back()[0]);
    const double range = std::max(std::log(high) - std::log(low), 0.1);
    std::string path;
    for (const auto& [at, value] : row.points) {
      const double part = (std::log(std::max(value, low)) - std::log(low)) / range;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                          left + (at - x.low) / (x.high - x.low) * kWidth,
                          y + 4 + kHeight * (1 - part));
    }
    svg += text(left - 8, y + 17, "end", row.label) +
           fmt::format("<path class=\"curve\" stroke=\"{}\" d=\"{}\"/>\n", colour_of(row), path);
    numbers.rows.push_back({row.label});
    double at = left + kWidth + kNumber;
    for (const double value : {row.points.front()[1], high, row.points.back()[1]}) {
      svg += text(at, y + 17, "end", fmt::format("{:.3g}", value));
      numbers.rows.back().push_back(fmt::format("{:.3g}", value));
      at += kNumber;
    }
    y += kRow;
  }
  return html_figure({svg + "</svg>\n", "", numbers});
}

std::string svg_histogram(const std::vector<int64_t>& bins, double low, double high,
                          const std::string& x) {
  if (bins.empty()) return "";
  const auto most = static_cast<double>(*std::max_element(bins.begin(), bins.end()));
  const Ends ends = apart(drawable(low), drawable(high));
  const Plot plot(ends.low, ends.high, 0, std::max(1.0, most));
  std::string svg = plot.begin(12, x) + plot.y_axis(false) + plot.x_axis(x);
  const double width = (ends.high - ends.low) / static_cast<double>(bins.size());
  Table numbers{{"from", "to", "steps"}, {}};
  for (size_t i = 0; i < bins.size(); ++i) {
    const double from = ends.low + width * static_cast<double>(i);
    const auto count = static_cast<double>(bins[i]);
    if (bins[i] <= 0) continue;
    numbers.rows.push_back(
        {fmt::format("{:.4g}", from), fmt::format("{:.4g}", from + width), with_commas(bins[i])});
    svg += fmt::format(
        "<rect class=\"compute\" "
        "x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>\n",
        plot.x(from) + 0.5, plot.y(count), plot.x(from + width) - plot.x(from) - 1,
        plot.y(0) - plot.y(count),
        title(
            fmt::format("{} from {:.3g} to {:.3g}", counted(bins[i], "step"), from, from + width)));
  }
  return html_figure({svg + "</svg>\n", "", numbers});
}

std::string svg_matrix(const std::vector<int64_t>& counts, const std::vector<std::string>& names) {
  const size_t n = names.size();
  if (n == 0 || counts.size() != n * n) return "";
  const bool spelt = n <= kFewClasses;  // else only colours: hundred classes have no room
  constexpr const char* kTitle = "row: the label · column: the answer";
  const double cell = spelt ? 34 : 360.0 / static_cast<double>(n);
  const double row = spelt ? 24 : cell;
  constexpr int64_t kLetters = 14;
  double left = 12;
  double upright = 0;  // of the columns' names, which stand upright if one is too long
  if (spelt)
    for (const std::string& name : names)
      left = std::max(left, width_of(shortened(name, kLetters)) + 14);
  if (left - 14 > cell) upright = left - 14;
  const double top = !spelt ? 24 : upright > 0 ? upright + 32 : 44;
  std::string svg = svg_begin(left + std::max(cell * static_cast<double>(n), width_of(kTitle)) + 8,
                              top + row * static_cast<double>(n) + 8, "confusion matrix");
  svg += text(left, 14, "start", kTitle);
  for (size_t r = 0; r < n; ++r) {
    const auto begin = counts.begin() + static_cast<ptrdiff_t>(r * n);
    const auto all = static_cast<double>(std::max<int64_t>(
        1, std::accumulate(begin, begin + static_cast<ptrdiff_t>(n), int64_t{0})));
    const double y = top + row * static_cast<double>(r);
    if (spelt) {
      const std::string name = shortened(names[r], kLetters);
      const double middle = left + cell * (static_cast<double>(r) + 0.5);
      svg += text(left - 6, y + 17, "end", name);
      if (upright > 0)
        svg += fmt::format("<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\">{}</text>\n",
                           middle + 4, top - 8, escaped(name));
      else
        svg += text(middle, 36, "middle", name);
    }
    for (size_t c = 0; c < n; ++c) {
      const int64_t count = counts[r * n + c];
      if (count == 0) continue;
      const double part = static_cast<double>(count) / all;
      const double x = left + cell * static_cast<double>(c);
      // An error is seen though it is rare: its root. Words stand out from at most a half.
      const double strength = 0.1 + 0.4 * (r == c ? part : std::min(1.0, 2 * std::sqrt(part)));
      svg += fmt::format(
          "<rect class=\"{}\" opacity=\"{:.2f}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
          "height=\"{:.1f}\">{}</rect>\n",
          r == c ? "compute" : "communicate", strength, x, y, cell - (spelt ? 1 : 0),
          row - (spelt ? 1 : 0),
          title(fmt::format("{} taken for {}: {}", names[r], names[c], count)));
      if (spelt) svg += text(x + cell / 2, y + 17, "middle", std::to_string(count));
    }
  }
  return html_figure({svg + "</svg>\n",
                      "<span class=\"key\">" + html_square("compute", "colour of right answers") +
                          " right</span> <span class=\"key\">" +
                          html_square("communicate", "colour of wrong answers") +
                          " wrong</span> The darker, the larger the part of its row.",
                      numbers_of_matrix(counts, names)});
}

}  // namespace ringgrad::program
