// Output for people. Results go to stdout, progress and messages to stderr; a bar is drawn only on
// a terminal, plain lines everywhere else; NO_COLOR and TERM=dumb are respected. With --json
// everything but one document goes to stderr (document.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

struct ConsoleOptions {
  bool quiet = false;  // answers and errors only; with --json the document and errors
  bool plain = false;  // no bar and no colour, even on a terminal
};
void configure_console(const ConsoleOptions& options);
// From now on nothing is printed: of several ranks only one speaks.
void silence_console(bool silent = true);

// All of these spell out characters that control a terminal (printable() in distributed/failure.h).
// This one prints a line of the answer.
void result(const std::string& line);
// A line that in_colour() has made: nothing in it is spelt out.
void result_in_colours(const std::string& line);
// The following break a long line between words on a terminal. This one prints words of the answer.
void sentence(const std::string& line);
// A line of how a run gets on, for stdout, too.
void news(const std::string& line);
// Prints a line about the program's progress.
void message(const std::string& line);
// Prints a message with the title in bold.
void headline(const std::string& title, const std::string& rest);
// Prints a line about a failure, even if the console is quiet.
void complain(const std::string& line);
// These put the line together as fmt::format does: result("{} of {} correct", right, all).
template <class First, class... Rest>
void result(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  result(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}
template <class First, class... Rest>
void sentence(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  sentence(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}
template <class First, class... Rest>
void news(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  news(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}
template <class First, class... Rest>
void message(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  message(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}
// Prints with --json, when the program ends; else nothing.
void print_json(const nlohmann::json& document);
// Returns true if results go to a terminal, and --plain does not forbid tables.
bool on_terminal();
// Returns the width of the terminal for results, within 40 and 200 columns; 80 if they go
// elsewhere.
int line_width();

// Breaks words into lines of at most `width` columns. Lines after the first begin with `indent`.
std::vector<std::string> wrapped(const std::string& text, int width,
                                 const std::string& indent = "");

// A column of a table, set to the right. A narrow terminal goes without those with the highest
// `goes` first, and never without those with 0.
struct Column {
  const char* title;
  int width;
  int goes = 0;
};
// Returns the row's cells in the columns for which there is room beside so many other columns of
// text.
std::string row_of(const std::vector<Column>& columns, const std::vector<std::string>& cells,
                   int beside = 0);
std::vector<std::string> titles_of(const std::vector<Column>& columns);

// Adds an SGR code, such as "32" for green, if results go to a terminal that may have colours.
std::string in_colour(const char* code, const std::string& text);

// "1,234,567", "11.6 MB", "4.1 s", "2 min 10 s"
std::string with_commas(int64_t n);
std::string counted(int64_t n, const std::string& noun);  // "1 step", "2 steps"
std::string human_bytes(int64_t bytes);
std::string human_time(double seconds);

// One line that is redrawn at most ten times a second, with the time left; off a terminal, a line
// every 30 seconds.
class Progress {
 public:
  // `beyond`: steps after these, for the time that the whole has left.
  Progress(std::string label, int64_t total, int64_t beyond = 0);
  ~Progress() { clear(); }
  // `detail` is asked for only when the line is drawn.
  void update(int64_t done, const std::function<std::string()>& detail);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string label_;
  const int64_t total_;
  const int64_t beyond_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool visible_ = false;
};

// Returns ". Did you mean 'train'?" or "" for a mistyped word on the command line.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ringgrad::program
