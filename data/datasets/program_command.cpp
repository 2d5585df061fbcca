#include "ringgrad/data/datasets/program_command.h"

#include <algorithm>
#include <cstring>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/base/text.h"

namespace ringgrad {
namespace {

std::string name_of_program = "ringgrad";

}  // namespace

std::string program_name() { return variable("RINGGRAD_CALLED_AS", name_of_program.c_str()); }
void set_program_name(const std::string& name) { name_of_program = name; }

std::string program_command(const std::string& words) { return program_name() + " " + words; }

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return is_letter(c) || is_digit(c) || std::strchr("%+,-./:=@_", c);
  };
  if (word.starts_with('-')) return shell_word("./" + word);
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace ringgrad
