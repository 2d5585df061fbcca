// What a mistyped command line was meant to be. For command_line.cpp alone, as it needs CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/models/program/console/console.h"

namespace ringgrad::program {

inline std::vector<const CLI::App*> children_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The long options of a command with what they are for, those of its groups (nameless children)
// included.
inline std::map<std::string, std::string> long_options(const CLI::App& app) {
  std::map<std::string, std::string> help;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames())
      help["--" + name] = option->get_description();
  for (const CLI::App* child : children_of(app))
    if (child->get_name().empty()) help.merge(long_options(*child));
  return help;
}

// For a word that names no command below this one; its own name comes first where there are several
// to choose from.
inline std::string no_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty()) names.push_back(child->get_name());
  const std::string above = app.get_parent() ? app.get_name() + ": " : "";
  return fmt::format("{}no command '{}'{}", above, word, did_you_mean(word, names));
}

// What there is below a command; "" : nothing.
inline std::string commands_below(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty()) names.push_back(child->get_name());
  if (names.empty()) return "";
  const std::string help = program_command(app.get_parent() ? "help " + app.get_name() : "--help");
  return fmt::format("{}: expected one of {}; `{}` says what they do", app.get_name(),
                     fmt::join(names, ", "), help);
}

// What is wrong with `help WORDS`, which are to name a command; "" : nothing.
inline std::string help_misunderstood(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    if (word.starts_with("-")) continue;
    const std::vector<const CLI::App*> below = children_of(*command);
    const auto named = std::find_if(below.begin(), below.end(),
                                    [&](const auto* child) { return child->get_name() == word; });
    if (named == below.end()) return no_command(*command, word);
    command = *named;
  }
  return "";
}

// For an option that there is not: one of almost that name, or that begins alike (--bucket is
// --bucket-mb, --output is
// --out), or whose help has its words: --learning-rate is --lr.
inline std::string option_meant(const std::string& name,
                                const std::map<std::string, std::string>& known) {
  std::vector<std::string> names;
  for (const auto& [option, help] : known) names.push_back(option);
  const std::string meant = did_you_mean(name, names);
  if (!meant.empty()) return meant;
  for (const std::string& option : names)
    if (std::min(option.size(), name.size()) > 4 &&
        (option.starts_with(name) || name.starts_with(option)))
      return ". Did you mean '" + option + "'?";
  std::string words = name.substr(2);
  std::replace(words.begin(), words.end(), '-', ' ');
  for (const auto& [option, help] : known)
    if (words.size() > 2 && help.find(words) != std::string::npos)
      return ". Did you mean '" + option + "'?";
  return "";
}

// The message for what CLI11 did not understand, with the nearest thing that exists.
inline std::string misunderstanding(const CLI::App& app, const CLI::ParseError& error, int argc,
                                    char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;  // another program's words follow
    if (word.starts_with("--")) {
      const std::string name = word.substr(0, word.find('='));
      auto known = long_options(*command);
      known.merge(long_options(app));
      if (!known.contains(name))
        return fmt::format("{}: no option '{}'{}", command->get_name(), name,
                           option_meant(name, known));
    } else if (!word.starts_with("-")) {
      const CLI::App* found = nullptr;
      for (const CLI::App* child : children_of(*command))
        if (!word.empty() && child->get_name() == word) found = child;
      if (!found && !commands_below(*command).empty()) return no_command(*command, word);
      if (found) command = found;
    }
  }
  const std::string below = commands_below(*command);
  if (!below.empty()) return below;
  // The value is a number (option_values.h), so it must be too large.
  const std::string what = error.what(), unconverted = "Could not convert: ";
  return what.starts_with(unconverted)
             ? what.substr(unconverted.size()) + ": the number is too large"
             : what;
}

}  // namespace ringgrad::program
