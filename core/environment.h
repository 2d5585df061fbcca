// Numbers from environment variables.
#pragma once

#include "core/error.h"

namespace ringgrad {

struct EnvironmentError : Error {  // a variable holds what it cannot; names it, and what was expected
  using Error::Error;
};

// The variable's value, or `otherwise` where it is not set or empty. Throws EnvironmentError unless it is a whole
// number from low to high.
int number_from_environment(const char* variable, int low, int high, int otherwise);

}  // namespace ringgrad
