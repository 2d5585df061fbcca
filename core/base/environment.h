// Environment variables. An empty variable counts as not set everywhere.
// program/commands/environment_table.cpp lists all of them, and `ringgrad doctor` prints the list.
#pragma once

#include <mutex>
#include <string>

#include "ringgrad/core/error.h"

namespace ringgrad {

// A variable has an invalid value. The message names the variable and what was expected.
struct EnvironmentError : Error {
  using Error::Error;
};

// Returns the variable's value, or `otherwise` if it is not set or empty.
std::string variable(const char* name, const char* otherwise = "");

// Does the same for a number. Throws EnvironmentError unless it is a whole number from low to high.
int number_from_environment(const char* name, int low, int high, int otherwise);

// A number of this process that cannot change once it is in use. It comes from set() if that was
// called, and otherwise from the variable. Thread-safe.
class ProcessNumber {
 public:
  constexpr ProcessNumber(const char* variable, int low, int high)
      : variable_(variable), low_(low), high_(high) {}
  // Throws EnvironmentError as number_from_environment() does.
  int get(int otherwise);
  // Throws Error unless n is from low to high, or if get() has already returned another number.
  void set(int n);

 private:
  const char* const variable_;
  const int low_;
  const int high_;
  std::mutex mutex_;
  int value_ = 0;  // 0: not known yet
  bool used_ = false;
};

}  // namespace ringgrad
