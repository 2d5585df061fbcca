// `ringgrad man FOLDER`: a manual page for the program and for each of its commands.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/file.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/command_table.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

struct ManOptions {
  const CLI::App* program = nullptr;
  std::string folder;
};

// Text as roff takes it: no line begins a request, a hyphen is that of a command line.
std::string roff(const std::string& text) {
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      escaped += "\\e";
    else if (text[i] == '-')
      escaped += "\\-";
    else
      escaped += text[i];
    const bool line_ends = text[i] == '\n' && i + 1 < text.size();
    if (line_ends && (text[i + 1] == '.' || text[i + 1] == '\'')) escaped += "\\&";
  }
  return escaped;
}

// "ringgrad-bench-ddp": the page's name.
std::string page_name(const std::string& words) {
  std::string name = words.empty() ? "ringgrad" : "ringgrad-" + words;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string rows_of(const std::vector<OptionRow>& options) {
  std::string text;
  for (const OptionRow& option : options) {
    const std::string value =
        option.choices.empty() ? option.type : fmt::format("{}", fmt::join(option.choices, "|"));
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n",
                        roff(fmt::format("{}", fmt::join(option.names, ", "))),
                        value.empty() ? "" : " \\fI" + roff(value) + "\\fR", roff(option.help));
  }
  return text;
}

std::string page(const CommandRow& row, const std::vector<CommandRow>& table) {
  const std::string name = page_name(row.words);
  std::string text = fmt::format(".TH {} 1 \"\" \"ringgrad {}\" \"ringgrad\"\n", upper(roff(name)),
                                 RINGGRAD_VERSION);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(row.help));
  text += fmt::format(".SH SYNOPSIS\n.B ringgrad{}\n{}[OPTIONS] {}\n",
                      row.words.empty() ? "" : " " + roff(row.words),
                      row.below.empty() ? "" : "COMMAND ",
                      roff(fmt::format("{}", fmt::join(row.arguments, " "))));
  if (!row.arguments_help.empty()) text += ".SH ARGUMENTS\n" + rows_of(row.arguments_help);
  if (!row.below.empty()) text += ".SH COMMANDS\n";
  for (const CommandRow& other : table) {
    const size_t space = other.words.rfind(' ');
    const std::string above = space == std::string::npos ? "" : other.words.substr(0, space);
    if (!other.words.empty() && above == row.words)
      text +=
          fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(other.words)), roff(other.help));
  }
  text += ".SH OPTIONS\n" + rows_of(row.options);
  if (!row.words.empty()) text += ".PP\nAnd those of \\fBringgrad\\fR(1).\n";
  if (!row.footer.empty()) text += ".SH MORE\n.nf\n" + roff(row.footer) + "\n.fi\n";
  return text;
}

int write_pages(const ManOptions& options) {
  const std::vector<CommandRow> table = command_table(*options.program);
  std::error_code none;  // what cannot be made cannot be written, and that is said
  std::filesystem::create_directories(options.folder, none);
  for (const CommandRow& row : table)
    write_text(std::filesystem::path(options.folder) / (page_name(row.words) + ".1"),
               page(row, table));
  result("{} in {}", counted(static_cast<int64_t>(table.size()), "page"), options.folder);
  print_json({{"folder", options.folder}, {"pages", table.size()}});
  return kOk;
}

void add_options(CLI::App* app, ManOptions& o) {
  o.program = app->get_parent();
  app->add_option("folder", o.folder, "where they are written")->required();
  app->footer("Example\n  ringgrad man pages && man -l pages/ringgrad-train.1");
}

const Command kMan(211, "man", "Write the manual pages of all commands", write_pages, add_options);

}  // namespace
}  // namespace ringgrad::program
