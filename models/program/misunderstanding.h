// What a mistyped command line was meant to be. For command_line.cpp alone, as it needs CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/models/program/console/console.h"

namespace ringgrad::program {

inline std::vector<const CLI::App*> children_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The long options of a command with what they are for, those of its groups (nameless children) included.
inline std::map<std::string, std::string> long_options(const CLI::App& app) {
  std::map<std::string, std::string> help;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames()) help["--" + name] = option->get_description();
  for (const CLI::App* child : children_of(app))
    if (child->get_name().empty()) help.merge(long_options(*child));
  return help;
}

// For an option that there is not: one of almost that name, or that begins alike (--bucket is --bucket-mb, --output is
// --out), or whose help has its words: --learning-rate is --lr.
inline std::string option_meant(const std::string& name, const std::map<std::string, std::string>& known) {
  std::vector<std::string> names;
  for (const auto& [option, help] : known) names.push_back(option);
  const std::string meant = did_you_mean(name, names);
  if (!meant.empty()) return meant;
  for (const std::string& option : names)
    if (std::min(option.size(), name.size()) > 4 && (option.starts_with(name) || name.starts_with(option)))
      return ". Did you mean '" + option + "'?";
  std::string words = name.substr(2);
  std::replace(words.begin(), words.end(), '-', ' ');
  for (const auto& [option, help] : known)
    if (words.size() > 2 && help.find(words) != std::string::npos) return ". Did you mean '" + option + "'?";
  return "";
}

// The message for what CLI11 did not understand, with the nearest thing that exists.
inline std::string misunderstanding(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;  // another program's words follow
    if (word.starts_with("--")) {
      const std::string name = word.substr(0, word.find('='));
      auto known = long_options(*command);
      known.merge(long_options(app));
      if (!known.contains(name))
        return fmt::format("{}: no option '{}'{}", command->get_name(), name, option_meant(name, known));
    } else if (!word.starts_with("-")) {
      std::vector<std::string> names;
      const CLI::App* found = nullptr;
      for (const CLI::App* child : children_of(*command)) {
        if (child->get_name() == word) found = child;
        if (!child->get_name().empty()) names.push_back(child->get_name());
      }
      if (!found && !names.empty()) return fmt::format("no command '{}'{}", word, did_you_mean(word, names));
      if (found) command = found;
    }
  }
  std::vector<std::string> below;
  for (const CLI::App* child : children_of(*command))
    if (!child->get_name().empty()) below.push_back(child->get_name());
  if (!below.empty()) return fmt::format("{}: expected one of {}", command->get_name(), fmt::join(below, ", "));
  return error.what();
}

}  // namespace ringgrad::program
