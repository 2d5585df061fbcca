// Commands as a person types them, for hints.
#pragma once

#include <string>

namespace ringgrad {

// How the program `ringgrad` was called: RINGGRAD_CALLED_AS, which ./go sets, else what
// set_program_name() said, else "ringgrad".
std::string program_name();
void set_program_name(const std::string& name);  // not thread-safe

// A command of the program as its caller can type it: "./go data get mnist".
std::string program_command(const std::string& words);

// `word` as it is typed in a shell: what is not plain, such as a path with spaces, in single
// quotes.
std::string shell_word(const std::string& word);

}  // namespace ringgrad
