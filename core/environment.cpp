#include "core/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/check.h"

namespace ringgrad {

int number_from_environment(const char* variable, int low, int high, int otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  const std::string_view text = value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  CHECK_AS(EnvironmentError,
           error == std::errc() && end == text.data() + text.size() && number >= low && number <= high, variable,
           " is '", text, "', expected a number from ", low, " to ", high);
  return number;
}

}  // namespace ringgrad
