// Commands in the form in which a user types them, for hints.
#pragma once

#include <string>

namespace ringgrad {

// Returns how the program `ringgrad` was called: RINGGRAD_CALLED_AS, which ./go sets, else the name
// given to set_program_name(), else "ringgrad".
std::string program_name();
void set_program_name(const std::string& name);  // not thread-safe

// Returns a command of the program as its caller can type it: "./go data get mnist".
std::string program_command(const std::string& words);

// Returns `word` as it is typed in a shell. Words that are not plain, such as a path with spaces,
// get single quotes.
std::string shell_word(const std::string& word);

}  // namespace ringgrad
