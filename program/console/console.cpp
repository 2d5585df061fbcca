#include "ringgrad/program/console/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/program/console/document.h"

namespace ringgrad::program {

namespace {

ConsoleOptions options;
bool silent = false;

bool is_quiet() { return silent || options.quiet; }

bool understands_escapes(int stream) {
  return isatty(stream) && variable("TERM", "dumb") != "dumb";
}

bool fancy() {  // stderr is a terminal where lines may be redrawn
  static const bool capable = understands_escapes(STDERR_FILENO);
  return capable && !options.plain && !is_quiet();
}

std::string styled(bool terminal, const char* code, const std::string& text) {
  if (!terminal || !variable("NO_COLOR").empty()) return text;
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

// Returns the columns of the terminal behind a stream; 80 if there is none.
int columns(int stream) {
  winsize size{};
  return ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Shows progress in the title bar or the dock (OSC 9;4, of ConEmu), if the terminal knows it.
// Others may print unknown sequences.
void show_percent(int state, int64_t percent) {
  static const bool known = [] {
    const std::string program = variable("TERM_PROGRAM");
    for (const char* knows : {"WezTerm", "ghostty", "iTerm.app"})
      if (program == knows) return true;
    return !variable("WT_SESSION").empty() || !variable("ConEmuPID").empty();
  }();
  if (known) std::cerr << fmt::format("\033]9;4;{};{}\033\\", state, percent);
}

// Columns that UTF-8 takes: every character here is one wide.
int columns_of(const std::string& line) {
  return static_cast<int>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Breaks lines between words that a terminal would break anywhere. What follows a label of eight
// columns ("why     ") stands below itself. A command has a line of its own, unbroken, so that it
// can be copied.
std::string fitted(const std::string& text, int stream) {
  if (options.plain || !understands_escapes(stream)) return text;
  const int width = std::max(40, columns(stream));
  std::vector<std::string> fitting;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t word = std::min(line.find_first_not_of(' '), line.size());
    const bool labelled = line.find_first_not_of(' ', line.find(' ')) == 8;
    const size_t begin = labelled ? 8 : word;
    const size_t command = line.find(program_command(""), begin);
    if (columns_of(line) <= width || command == begin) {
      fitting.push_back(line);
      continue;
    }
    const bool copied = command != std::string::npos && line[command - 1] == ' ';
    auto parts = wrapped(copied ? line.substr(begin, command - begin) : line.substr(begin),
                         width - static_cast<int>(begin));
    if (copied) parts.push_back(line.substr(command));
    fitting.push_back(line.substr(0, begin) +
                      fmt::format("{}", fmt::join(parts, "\n" + std::string(begin, ' '))));
  }
  return fmt::format("{}", fmt::join(fitting, "\n"));
}

constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 30;

}  // namespace

void configure_console(const ConsoleOptions& wanted) { options = wanted; }

void silence_console(bool on) { silent = on; }

void result_in_colours(const std::string& line) {
  if (!silent && !(options.quiet && document_is_open())) std::cout << line << std::endl;
}
void result(const std::string& line) { result_in_colours(printable(line)); }
void sentence(const std::string& line) {
  result_in_colours(fitted(printable(line), STDOUT_FILENO));
}
void news(const std::string& line) {
  if (!is_quiet()) sentence(line);
}
void message(const std::string& line) {
  if (!is_quiet()) std::cerr << fitted(printable(line), STDERR_FILENO) << std::endl;
}
void headline(const std::string& title, const std::string& rest) {
  if (is_quiet()) return;
  const std::string line = fitted(title + printable(rest), STDERR_FILENO);
  std::cerr << styled(fancy(), "1", title) << line.substr(title.size()) << std::endl;
}
void complain(const std::string& line) { std::cerr << printable(line) << std::endl; }
void print_json(const nlohmann::json& document) {
  if (!silent && document_is_open()) keep_document(document);
}

bool on_terminal() { return !options.plain && understands_escapes(STDOUT_FILENO); }
int line_width() { return std::clamp(columns(STDOUT_FILENO), 40, 200); }

std::vector<std::string> wrapped(const std::string& text, int width, const std::string& indent) {
  std::vector<std::string> lines{""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.back() != indent && !lines.back().empty()) {
      if (columns_of(lines.back()) + 1 + columns_of(word) > width)
        lines.push_back(indent);
      else
        lines.back() += ' ';
    }
    lines.back() += word;
  }
  return lines;
}

std::string row_of(const std::vector<Column>& columns, const std::vector<std::string>& cells,
                   int beside) {
  std::vector<Column> shown = columns;
  const auto is_first_to_go = [](const Column& a, const Column& b) { return a.goes < b.goes; };
  const auto width = [&] {
    return std::accumulate(shown.begin(), shown.end(), beside,
                           [](int sum, const Column& column) { return sum + column.width; });
  };
  while (on_terminal() && width() > line_width()) {
    const auto first = std::max_element(shown.begin(), shown.end(), is_first_to_go);
    if (first->goes == 0) break;
    *first = {"", 0, 0};
  }
  std::string row;
  for (size_t i = 0; i < shown.size(); ++i)
    if (shown[i].width > 0) row += fmt::format("{:>{}}", cells[i], shown[i].width);
  return row;
}

std::vector<std::string> titles_of(const std::vector<Column>& columns) {
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  return titles;
}

std::string in_colour(const char* code, const std::string& text) {
  return styled(on_terminal(), code, text);
}

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(at, ",");
  return digits;
}

std::string counted(int64_t n, const std::string& noun) {
  const bool hisses = noun.ends_with("ss") || (noun.ends_with("ch") && noun != "epoch");
  return with_commas(n) + " " + noun + (n == 1 ? "" : hisses ? "es" : "s");
}

std::string human_bytes(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  const char* units[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1000;
  int unit = 0;
  for (; value >= 1000 && unit < 3; ++unit) value /= 1000;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_time(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(std::string label, int64_t total, int64_t beyond)
    : label_(std::move(label)), total_(total), beyond_(beyond) {}

void Progress::update(int64_t done, const std::function<std::string()>& detail) {
  const auto now = Clock::now();
  const double since = seconds_between(drawn_, now);
  if (is_quiet() || since < (fancy() ? kRedrawSeconds : kPlainSeconds)) return;
  drawn_ = now;
  const double elapsed = seconds_between(start_, now);
  const double each = done > 0 ? elapsed / static_cast<double>(done) : 0;
  const double left = each * static_cast<double>(total_ - done);
  const double whole = left + each * static_cast<double>(beyond_);
  const std::string of_all = beyond_ > 0 ? fmt::format(", {} of all", human_time(whole)) : "";
  const auto text =
      fmt::format("{}/{}  {}  {} left{}", done, total_, detail(), human_time(left), of_all);
  if (!fancy()) {
    std::cerr << label_ << ' ' << text << std::endl;
    return;
  }
  // A line that wraps could not be drawn over.
  const int width = std::clamp(columns(STDERR_FILENO) - (beyond_ > 0 ? 58 : 42), 0, 24);
  const int filled = static_cast<int>(done * width / std::max<int64_t>(total_, 1));
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "━" : i == filled ? "╸" : " ";
  show_percent(1, 100 * done / std::max<int64_t>(total_, 1));
  std::cerr << "\r\033[K" << label_ << ' ' << bar << "  " << text << std::flush;
  visible_ = true;
}

void Progress::clear() {
  if (!visible_) return;
  show_percent(0, 0);
  std::cerr << "\r\033[K" << std::flush;
  visible_ = false;
}

namespace {

// A transposition counts one (Damerau 1964).
int edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters may be wrong.
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const bool cut_short = word.size() > 2 && candidate.starts_with(word);
    const int distance = cut_short ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : ". Did you mean '" + best + "'?";
}

}  // namespace ringgrad::program
