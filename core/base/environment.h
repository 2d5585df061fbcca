// Environment variables. One that is empty counts as not set, everywhere.
#pragma once

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

// A command of the program `ringgrad` as its caller can type it: "./go data get mnist".
// RINGGRAD_CALLED_AS says how the program was called; it says so itself, for what it links and for
// the ranks that it starts.
std::string program_command(const std::string& words);

// `word` as it is typed in a shell: what is not plain, such as a path with spaces, in single
// quotes.
std::string shell_word(const std::string& word);

}  // namespace ringgrad
