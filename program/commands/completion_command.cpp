// `ringgrad completion SHELL`: a script by which the shell completes commands, options and values.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/command_table.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

struct CompletionOptions {
  const CLI::App* program = nullptr;
  std::string shell;
};

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += now.size())
    text.replace(at, old.size(), now);
  return text;
}

// As one word of a script of bash or zsh.
std::string word_of_shell(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}
std::string word_of_fish(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// "bench ddp" as a shell sees it come: "bench", and behind it "ddp". Quoted, for a `case`.
std::vector<std::string> steps(const std::vector<CommandRow>& table) {
  std::vector<std::string> all;
  for (const CommandRow& row : table) {
    const size_t space = row.words.rfind(' ');
    const size_t end = space == std::string::npos ? 0 : space;
    if (!row.words.empty())
      all.push_back("'" + row.words.substr(0, end) + " " + row.words.substr(end ? end + 1 : 0) +
                    "'");
  }
  return all;
}

// A command's options, and those of the program, which may follow any command.
std::vector<OptionRow> options_after(const CommandRow& row, const CommandRow& program) {
  std::vector<OptionRow> all = row.options;
  for (const OptionRow& option : program.options)
    if (std::none_of(all.begin(), all.end(),
                     [&](const OptionRow& own) { return own.names == option.names; }))
      all.push_back(option);
  return all;
}

const std::string& help_of(const std::vector<CommandRow>& table, const std::string& words) {
  return std::find_if(table.begin(), table.end(),
                      [&](const auto& row) { return row.words == words; })
      ->help;
}

std::string below(const CommandRow& row, const std::string& name) {
  return row.words.empty() ? name : row.words + " " + name;
}

// bash and zsh differ in what they do with a word and its help. `offer` is a script's line for the
// words that may come after `row`, or after one of its options.
std::string script(const std::vector<CommandRow>& table, const char* begin, const char* end,
                   const std::function<std::string(const CommandRow&)>& offer_after,
                   const std::function<std::string(const OptionRow&)>& offer_values) {
  std::string text = begin;
  text += fmt::format("    case \"$at $word\" in\n      {}) at=${{at:+$at }}$word ;;\n    esac\n",
                      fmt::join(steps(table), "|"));
  text += "  done\n  case \"$at\" in\n";
  for (const CommandRow& row : table)
    text += fmt::format("    '{}')\n{}      ;;\n", row.words, offer_after(row));
  text += "  esac\n  case \"$at $before\" in\n";
  std::map<std::string, std::vector<std::string>> after;  // most options have values of their own
  for (const CommandRow& row : table)
    for (const OptionRow& option : row.options)
      if (!option.type.empty())
        for (const std::string& name : option.names)
          after[offer_values(option)].push_back("'" + row.words + " " + name + "'");
  for (const auto& [offer, names] : after)
    text += fmt::format("    {}) {} ;;\n", fmt::join(names, "|"), offer);
  return text + "  esac\n" + end;
}

std::string for_bash(const std::vector<CommandRow>& table) {
  const auto words_after = [&](const CommandRow& row) {
    std::vector<std::string> words = row.below;
    for (const OptionRow& option : options_after(row, table.front()))
      words.insert(words.end(), option.names.begin(), option.names.end());
    return fmt::format("      words='{}'\n", fmt::join(words, " "));
  };
  return script(table, R"(_ringgrad() {
  local at= word words= before=${COMP_WORDS[COMP_CWORD-1]}
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
)",
                R"(  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _ringgrad ringgrad
)",
                words_after, [](const OptionRow& option) {
                  return fmt::format("words='{}'", fmt::join(option.choices, " "));
                });
}

std::string for_zsh(const std::vector<CommandRow>& table) {
  const auto described = [](const std::string& name, const std::string& help) {
    return " " + word_of_shell(name + ":" + replaced(help, ":", "\\:"));
  };
  const auto words_after = [&](const CommandRow& row) {
    std::string commands;
    std::string options;
    for (const std::string& name : row.below)
      commands += described(name, help_of(table, below(row, name)));
    for (const OptionRow& option : options_after(row, table.front()))
      for (const std::string& name : option.names) options += described(name, option.help);
    return fmt::format("      commands=({})\n      options=({})\n", commands, options);
  };
  return script(table, R"(#compdef ringgrad
local at= word before=$words[CURRENT-1]
local -a commands options values
local -i given=0
  for word in "${(@)words[2,CURRENT-1]}"; do
)",
                R"(if (( given )); then
  (( $#values )) && compadd -a values || _files
elif [[ $words[CURRENT] == -* ]]; then
  _describe -o option options
else
  (( $#commands )) && _describe command commands || _files
fi
)",
                words_after, [](const OptionRow& option) {
                  return fmt::format("given=1; values=({})", fmt::join(option.choices, " "));
                });
}

std::string for_fish(const std::vector<CommandRow>& table) {
  std::string text = fmt::format(R"(function __ringgrad_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case {}
        set at (string trim "$at $word")
    end
  end
  test "$at" = "$argv"
end
)",
                                 fmt::join(steps(table), " "));
  for (const CommandRow& row : table) {
    const std::string begin = fmt::format("complete -c ringgrad -n '__ringgrad_at {}'", row.words);
    for (const std::string& name : row.below)
      text += fmt::format("{} -f -a {} -d {}\n", begin, name,
                          word_of_fish(help_of(table, below(row, name))));
    for (const OptionRow& option : options_after(row, table.front())) {
      text += begin;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.type.empty()) text += " -r";
      if (!option.choices.empty())
        text += fmt::format(" -f -a '{}'", fmt::join(option.choices, " "));
      text += " -d " + word_of_fish(option.help) + "\n";
    }
  }
  return text;
}

int complete(const CompletionOptions& options) {
  const std::vector<CommandRow> table = command_table(*options.program);
  const std::string text = options.shell == "bash"  ? for_bash(table)
                           : options.shell == "zsh" ? for_zsh(table)
                                                    : for_fish(table);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) result(line);
  print_json({{"shell", options.shell}, {"script", text}});
  return kOk;
}

void add_options(CLI::App* app, CompletionOptions& o) {
  o.program = app->get_parent();
  app->add_option("shell", o.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer(R"text(Examples
  eval "$(ringgrad completion bash)"                 now; or in ~/.bashrc
  ringgrad completion fish > ~/.config/fish/completions/ringgrad.fish
  ringgrad completion zsh > FOLDER/_ringgrad         FOLDER: one of $fpath)text");
}

const Command kCompletion(210, "completion", "Print a shell's completions of this program",
                          complete, add_options);

}  // namespace
}  // namespace ringgrad::program
