#include "ringgrad/program/commands/command_table.h"

#include <algorithm>
#include <sstream>

#include "ringgrad/program/misunderstanding.h"

namespace ringgrad::program {
namespace {

// CLI11 names a choice "TEXT:{ddp,dp,none}".
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return choices;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row{.names = {}, .help = option.get_description(), .type = {}, .choices = {}};
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  if (row.names.empty()) row.names.push_back(option.get_name());
  if (option.get_items_expected_max() == 0) return row;
  row.choices = choices_in(option.get_type_name());
  row.type = option.get_type_name();
  row.type = row.choices.empty() ? row.type.substr(0, row.type.find_first_of(" :")) : "CHOICE";
  return row;
}

void add_options_of(const CLI::App& app, CommandRow& row) {
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    if (option->get_group().empty()) continue;  // hidden
    if (!option->get_positional()) {
      const OptionRow own = row_of(*option);  // a group has a --help of its own
      if (std::none_of(row.options.begin(), row.options.end(),
                       [&](const OptionRow& other) { return other.names == own.names; }))
        row.options.push_back(own);
      continue;
    }
    const bool many = option->get_items_expected_max() > 1;
    const std::string name = "<" + option->get_name() + ">" + (many ? "…" : "");
    row.arguments.push_back(option->get_required() ? name : "[" + name + "]");
    row.arguments_help.push_back(row_of(*option));
  }
  for (const CLI::App* child : children_of(app))
    if (child->get_name().empty()) add_options_of(*child, row);  // a group
}

void add_rows(const CLI::App& app, const std::string& words, std::vector<CommandRow>& rows) {
  CommandRow row{};
  row.words = words;
  row.help = app.get_description();
  row.footer = app.get_footer();
  add_options_of(app, row);
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty()) row.below.push_back(child->get_name());
  rows.push_back(row);
  for (const CLI::App* child : children_of(app))
    if (!child->get_name().empty())
      add_rows(*child, (words.empty() ? "" : words + " ") + child->get_name(), rows);
}

}  // namespace

std::vector<CommandRow> command_table(const CLI::App& program) {
  std::vector<CommandRow> rows;
  add_rows(program, "", rows);
  return rows;
}

}  // namespace ringgrad::program
