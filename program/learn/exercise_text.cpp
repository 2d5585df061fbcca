#include "ringgrad/program/learn/exercise_text.h"

#include <sstream>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/datasets/program_command.h"

namespace ringgrad::program {
namespace {

// The source without the body of the function whose definition begins with `blank`. clang-format
// sees to it that a body of several lines ends with a brace at a line's beginning, and a short one
// with its line.
std::string without_body(const std::string& source, const std::string& blank) {
  const size_t begin = source.find("\n" + blank);
  ASSERT(begin != std::string::npos);
  const size_t body = source.find('{', begin);
  const size_t several = source.find("\n}\n", begin) + 3;
  const size_t end = source[body + 1] == '\n' ? several : source.find('\n', body) + 1;
  return source.substr(0, body) +
         "{\n  throw std::logic_error(\"this function is not written yet\");  "
         "// yours to write\n}\n" +
         source.substr(end);
}

}  // namespace

std::string file_of(const Exercise& exercise, int number) {
  std::string name = exercise.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return fmt::format("learn/{:02}_{}.cpp", number, name);
}

std::vector<std::string> paragraphs(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  bool open = false;  // the last line takes further words
  for (std::string line; std::getline(in, line);) {
    if (line.empty() && !lines.empty()) lines.emplace_back();
    if (line.empty()) open = false;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (open && lines.back().size() + 1 + word.size() <= width)
        lines.back() += " " + word;
      else
        lines.push_back(word);
      open = true;
    }
  }
  return lines;
}

std::string stub_of(const Exercise& exercise, int number) {
  std::string source = engine_source(exercise.source);
  for (const char* blank : exercise.blanks) source = without_body(source, blank);
  std::string text = fmt::format("// Exercise {}: {}.\n//\n", number, exercise.name);
  for (const std::string& line : paragraphs(exercise.task, 116))
    text += (line.empty() ? "//" : "// " + line) + "\n";
  text += fmt::format(
      "//\n// This is {}, without what you write. "
      "When you have written it:\n//   {}\n#include <stdexcept>\n\n",
      exercise.source, program_command(fmt::format("learn check {}", number)));
  return text + source;
}

}  // namespace ringgrad::program
