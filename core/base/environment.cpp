#include "ringgrad/core/base/environment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

int number_from_environment(const char* name, int low, int high, int otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  const std::optional<int> number = parse_number<int>(text);
  CHECK_AS(EnvironmentError, number && *number >= low && *number <= high, name, " is '", text,
           "', expected a number from ", low, " to ", high);
  return *number;
}

std::string program_command(const std::string& words) {
  return variable("RINGGRAD_CALLED_AS", "ringgrad") + " " + words;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return is_letter(c) || is_digit(c) || std::strchr("%+,-./:=@_", c);
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace ringgrad
