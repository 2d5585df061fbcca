// Guesses what a mistyped command line was meant to be.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {

inline std::vector<const CLI::App*> children_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Returns the long options of a command with their descriptions, also those of its groups (nameless
// children).
inline std::map<std::string, std::string> long_options(const CLI::App& app) {
  std::map<std::string, std::string> help;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames())
      help["--" + name] = option->get_description();
  for (const CLI::App* child : children_of(app))
    if (child->get_name().empty()) help.merge(long_options(*child));
  return help;
}

// Returns "bench train: ", which begins messages about this command; "" for the program itself.
inline std::string prefix_for(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command = &app; command->get_parent(); command = command->get_parent())
    words = command->get_name() + (words.empty() ? ": " : " " + words);
  return words;
}

// Returns the message for a word that names no command below this one.
inline std::string no_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty()) names.push_back(child->get_name());
  return fmt::format("{}no command '{}'{}", prefix_for(app), word, did_you_mean(word, names));
}

// "`ringgrad help bench train` says …"
inline std::string help_for(const CLI::App& app, const char* says) {
  const std::string words = prefix_for(app);
  const std::string named = words.substr(0, words.find(':'));
  return fmt::format("`{}` says {}", program_command(named.empty() ? "--help" : "help " + named),
                     says);
}

// Names the commands below a command; "" if there are none.
inline std::string commands_below(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty()) names.push_back(child->get_name());
  if (names.empty()) return "";
  return fmt::format("{}expected one of {}; {}", prefix_for(app), fmt::join(names, ", "),
                     help_for(app, "what they do"));
}

// Says what is wrong with `help WORDS`, which must name a command; "" if nothing is.
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

// Suggests an option for one that does not exist. It has almost the same name, or begins alike
// (--bucket is --bucket-mb, --output is --out), or its help has the same words (--learning-rate is
// --lr).
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

// Returns the option of this command, or of the program, that a word names; nullptr: none.
inline const CLI::Option* option_named(const CLI::App& command, const CLI::App& program,
                                       const std::string& name) {
  const CLI::Option* own = command.get_option_no_throw(name);
  return own ? own : program.get_option_no_throw(name);
}

// Returns CLI11's sentence in our words: the mistake, and what was expected.
inline std::string in_our_words(const CLI::App& command, const std::string& what) {
  const auto match = [&](const char* pattern) {
    std::smatch found;
    std::regex_match(what, found, std::regex(pattern));
    std::vector<std::string> parts(found.begin(), found.end());
    return parts;
  };
  // The value is a number (option_values.h), so it must be too large.
  if (const auto p = match("Could not convert: (.*)"); !p.empty())
    return p[1] + ": the number is too large";
  if (const auto p = match("(\\S+): Value (.*) not in range (.*)"); !p.empty())
    return fmt::format("{} is {}, expected {}", p[1], p[2], p[3]);
  if (const auto p = match("(\\S+): (.*) not in \\{(.*)\\}"); !p.empty())
    return fmt::format("{} is '{}', expected {}", p[1], p[2], p[3]);
  if (const auto p = match("(\\S+): \\d+ required .* missing"); !p.empty())
    return p[1] + " needs a value";
  if (const auto p = match("(\\S+) is required"); !p.empty()) {
    const CLI::Option* option = command.get_option_no_throw(p[1]);
    return fmt::format("{}{} is required{}", prefix_for(command), p[1],
                       option ? ": " + option->get_description() : "");
  }
  if (const auto p = match("The following arguments? w.* not expected: (.*)"); !p.empty())
    return fmt::format("{}not expected: {}; {}", prefix_for(command), p[1],
                       help_for(command, "what it takes"));
  return what;
}

// Returns the message for words that CLI11 did not understand, with the nearest existing thing.
inline std::string misunderstanding(const CLI::App& app, const CLI::ParseError& error, int argc,
                                    char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string next = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--") break;  // another program's words follow
    const bool is_short = word.size() > 1 && word[0] == '-' && std::isalpha(word[1]);
    if (word.starts_with("--") || is_short) {
      const std::string name = is_short ? word.substr(0, 2) : word.substr(0, word.find('='));
      const CLI::Option* option = option_named(*command, app, name);
      if (!option) {
        auto known = long_options(*command);
        known.merge(long_options(app));
        return fmt::format("{}no option '{}'{}", prefix_for(*command), is_short ? word : name,
                           option_meant(is_short ? "-" + word : name, known));
      }
      const bool needs_value = option->get_items_expected_min() > 0 && word == name;
      if (needs_value && next.starts_with("--") && option_named(*command, app, next))
        return fmt::format("{}{} needs a value, and {} is an option", prefix_for(*command), word,
                           next);
      i += needs_value ? 1 : 0;
    } else if (!word.starts_with("-")) {
      const CLI::App* found = nullptr;
      for (const CLI::App* child : children_of(*command))
        if (!word.empty() && child->get_name() == word) found = child;
      if (!found && !commands_below(*command).empty()) return no_command(*command, word);
      if (found) command = found;
    }
  }
  const std::string below = commands_below(*command);
  return below.empty() ? in_our_words(*command, error.what()) : below;
}

}  // namespace ringgrad::program
