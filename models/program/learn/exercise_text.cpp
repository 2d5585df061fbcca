#include "ringgrad/models/program/learn/exercise_text.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad::program {
namespace {

// The source without the body of the function whose definition begins with `blank`: clang-format sees to it that the
// body ends with a brace at a line's beginning.
std::string without_body(const std::string& source, const std::string& blank) {
  const size_t begin = source.find("\n" + blank);
  ASSERT(begin != std::string::npos);
  const size_t body = source.find("{\n", begin) + 2, end = source.find("\n}\n", begin) + 1;
  ASSERT(body < end);
  return source.substr(0, body) +
         "  throw std::logic_error(\"this function is not written yet\");  // yours to write\n" + source.substr(end);
}

}  // namespace

std::string file_of(const Exercise& exercise, int number) {
  std::string name = exercise.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return fmt::format("learn/{:02}_{}.cpp", number, name);
}

std::string stub_of(const Exercise& exercise, int number) {
  std::string source = engine_source(exercise.source);
  for (const char* blank : exercise.blanks) source = without_body(source, blank);
  std::string text = fmt::format("// Exercise {}: {}.\n//\n", number, exercise.name);
  std::istringstream task(exercise.task);
  for (std::string line; std::getline(task, line);) text += (line.empty() ? "//" : "// " + line) + "\n";
  text += fmt::format(
      "//\n// This is {}, without what you write. When you have written it:\n//   {}\n#include <stdexcept>\n\n",
      exercise.source, program_command(fmt::format("learn check {}", number)));
  return text + source;
}

}  // namespace ringgrad::program
