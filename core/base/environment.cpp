#include "ringgrad/core/base/environment.h"

#include <cstdlib>

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

int ProcessNumber::get(int otherwise) {
  const std::lock_guard lock(mutex_);
  if (value_ == 0) value_ = number_from_environment(variable_, low_, high_, otherwise);
  used_ = true;
  return value_;
}

void ProcessNumber::set(int n) {
  const std::lock_guard lock(mutex_);
  CHECK(n >= low_ && n <= high_, variable_, ": ", n, ", expected ", low_, " to ", high_);
  CHECK(!used_ || value_ == n, variable_, ": ", n, ", and ", value_,
        " is in use already; say it before the first tensor");
  value_ = n;
}

}  // namespace ringgrad
