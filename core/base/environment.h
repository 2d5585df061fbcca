// Environment variables. One that is empty counts as not set, everywhere. Which there are is in
// program/commands/environment_table.cpp, and `ringgrad doctor` prints it.
#pragma once

#include <mutex>
#include <string>

#include "ringgrad/core/error.h"

namespace ringgrad {

// A variable holds what it cannot; names it, and what was expected.
struct EnvironmentError : Error {
  using Error::Error;
};

// The variable's value, or `otherwise` where it is not set or empty.
std::string variable(const char* name, const char* otherwise = "");

// The same for a number. Throws EnvironmentError unless it is a whole number from low to high.
int number_from_environment(const char* name, int low, int high, int otherwise);

// A number of this process that never changes once it is in use: what set() has said, else what the
// variable says. Thread-safe.
class ProcessNumber {
 public:
  constexpr ProcessNumber(const char* variable, int low, int high)
      : variable_(variable), low_(low), high_(high) {}
  // Throws EnvironmentError as number_from_environment() does.
  int get(int otherwise);
  // Throws Error unless n is from low to high, and where get() has returned another number.
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
