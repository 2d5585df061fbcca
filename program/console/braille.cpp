#include "ringgrad/program/console/braille.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/drawable.h"

namespace ringgrad::program {
namespace {

constexpr int kLabel = 9;  // columns

// The dots of each character, and the colour of the curve that has set the last one.
class Dots {
 public:
  Dots(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns) * rows) {}
  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void set(int x, int y, const char* colour) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    // Unicode numbers them downwards, the left ones first, but for the lowest two.
    constexpr int kBit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Cell& cell = cells_[static_cast<size_t>(y / 4) * columns_ + x / 2];
    cell.dots |= kBit[y % 4][x % 2];
    cell.colour = colour;
  }
  void line(double x0, double y0, double x1, double y1, const char* colour) {
    const double steps = std::max(1.0, std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
    for (double i = 0; i <= steps; ++i)
      set(static_cast<int>(std::lround(x0 + (x1 - x0) * i / steps)),
          static_cast<int>(std::lround(y0 + (y1 - y0) * i / steps)), colour);
  }
  std::string row(int r) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const Cell& cell = cells_[static_cast<size_t>(r) * columns_ + c];
      const int code = 0x2800 + cell.dots;
      const std::string glyph = {static_cast<char>(0xE0 | code >> 12),
                                 static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                                 static_cast<char>(0x80 | (code & 0x3F))};
      text += cell.dots ? in_colour(cell.colour, glyph) : " ";
    }
    return text;
  }

 private:
  struct Cell {
    int dots = 0;
    const char* colour = "";
  };
  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

}  // namespace

ScreenSize screen_size() {
  winsize size{};
  const bool known =
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? ScreenSize{std::max<int>(20, size.ws_col), std::max<int>(8, size.ws_row)}
               : ScreenSize{80, 24};
}

std::vector<std::string> BraillePlot::lines() const {
  const std::vector<Curve> curves = drawable(this->curves);
  double left = INFINITY;
  double right = -INFINITY;
  double bottom = INFINITY;
  double top = -INFINITY;
  for (const Curve& curve : curves)
    for (const auto& [x, y] : curve.points) {
      left = std::min(left, x);
      right = std::max(right, x);
      bottom = std::min(bottom, y);
      top = std::max(top, y);
    }
  if (!std::isfinite(left + right + bottom + top) || columns < kLabel + 10 || rows < 2) return {};
  const bool by_log = logarithmic && bottom > 0;
  const auto scaled = [&](double y) { return by_log ? std::log(y) : y; };
  const double low = scaled(bottom);
  const double range = std::max(scaled(top) - low, 1e-12);

  Dots dots(columns - kLabel, rows);
  const auto place = [&](const std::array<double, 2>& p) {
    return std::array{(p[0] - left) / std::max(right - left, 1e-12) * (dots.width() - 1),
                      (1 - (scaled(p[1]) - low) / range) * (dots.height() - 1)};
  };
  for (const Curve& curve : curves)
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const auto from = place(curve.points[i > 0 ? i - 1 : 0]);
      const auto to = place(curve.points[i]);
      dots.line(from[0], from[1], to[0], to[1], curve.colour);
    }
  std::vector<std::string> all;
  for (int r = 0; r < rows; ++r) {
    const double y = r == 0 ? top : r == rows - 1 ? bottom : NAN;
    const std::string label = std::isnan(y) ? ""
                              : percent     ? fmt::format("{:.1f} %", 100 * y)
                                            : fmt::format("{:.3g}", y);
    all.push_back(fmt::format("{:>{}} ", label, kLabel - 1) + dots.row(r));
  }
  return all;
}

}  // namespace ringgrad::program
