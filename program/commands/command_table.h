// Every command with its options, as the command line has them: for what is made of that, such as
// manual pages and the completions of shells.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace ringgrad::program {

struct OptionRow {
  std::vector<std::string> names;    // "-q", "--quiet"
  std::string help;                  // one line
  std::string type;                  // "INT"; empty: it takes no value
  std::vector<std::string> choices;  // the values that it takes, where they are few
};

struct CommandRow {
  std::string words;  // "bench ddp"; empty: the program itself
  std::string help;
  std::string footer;                  // examples
  std::vector<std::string> arguments;  // "<run>", "[<image>…]"
  std::vector<OptionRow> arguments_help;
  std::vector<OptionRow> options;  // its own
  std::vector<std::string> below;  // last words of its commands: "ddp"
};

// The program itself and all its commands, each before its own ones.
std::vector<CommandRow> command_table(const CLI::App& program);

}  // namespace ringgrad::program
