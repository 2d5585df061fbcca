#include "ringgrad/program/command_line.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/misunderstanding.h"
#include "ringgrad/program/option_values.h"
#include "ringgrad/program/run/build.h"

namespace ringgrad::program {
namespace {

// A name, and what it means beside it, or below it where the name is long. Lines have at most 80
// columns, and no more than the terminal.
std::string two_columns(const std::string& name, const std::string& meaning) {
  constexpr int kLeft = 30;
  constexpr int kNested = 2;  // a command within a command is shown that much further right
  const std::string indent(kLeft, ' ');
  const std::string left = "  " + name;
  const bool fits = left.size() < kLeft;
  std::string text = fits ? left + indent.substr(left.size()) : left + '\n' + indent;
  const auto lines = wrapped(meaning, std::min(80, line_width()) - kLeft - kNested);
  return text + fmt::format("{}\n", fmt::join(lines, "\n" + indent));
}

class HelpFormatter : public CLI::Formatter {
 public:
  // CLI11 says of --no-report what it sets: --no-report{false}.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    while (name.find('{') != std::string::npos)
      name.erase(name.find('{'), name.find('}') - name.find('{') + 1);
    return name;
  }
  // Nor is a type said twice: INT:INT in [1 - 64].
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string words = CLI::Formatter::make_option_opts(option);
    for (const std::string type : {"INT", "UINT", "FLOAT"})
      if (words.starts_with(" " + type + ":" + type + " ")) words.erase(1, type.size() + 1);
    return words;
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return two_columns(make_option_name(option, is_positional) + make_option_opts(option),
                       make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description());
  }
};

std::string examples() {
  const auto line = [](const char* words, const char* what) {
    return two_columns(program_command(words), what);
  };
  return "Examples\n" + line("train", "the default: a small CNN on generated digits") +
         line("train --data cifar10 --model resnet20", "a ResNet on CIFAR-10") +
         line("eval runs/latest --confusion", "where the network errs") + R"(
Exit codes: 0 ok, 1 training failed, 2 usage, 3 environment, 4 data or
checkpoint, 5 a rank died, 6 timeout or out of step, 7 memory, 8 disk,
130 interrupted (after saving).)";
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("A from-scratch tensor and autograd engine with built-in data parallelism",
               "ringgrad");
  app.set_version_flag("--version", "ringgrad " RINGGRAD_VERSION,
                       "version, commit and how it was built");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());  // commands inherit it when they are added
  app.fallthrough();                                 // the options below may also follow a command
  ConsoleOptions console;
  app.add_flag("--json")->description(
      "one JSON document on stdout, also of an error; everything else on stderr");
  app.add_flag("-q,--quiet", console.quiet, "no progress and no messages: answers and errors only");
  app.add_flag("--plain", console.plain, "no bar and no colour, even on a terminal");

  Command::Run run;
  Command::add_all(app, run);
  check_values(app);
  app.footer(examples());  // last: commands inherit it when they are added
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto first = std::find_if(words.begin(), words.end(),
                                  [](const auto& word) { return !word.starts_with("-"); });
  if (first != words.end() && *first == "help") {
    words.erase(first);
    if (const std::string mistake = help_misunderstood(app, words); !mistake.empty())
      throw UsageError(mistake);
    words.push_back("--help");
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    result(app.help());  // the help of the command that was named
    print_json({{"help", app.help()}});
    return kOk;
  } catch (const CLI::CallForVersion& version) {
    result(version.what());
    nlohmann::json document;
    for (const auto& [name, value] : build_facts()) {
      document[name] = value;
      if (name != "version") result("{:<11}{}", name, value);
    }
    print_json(document);
    return kOk;
  } catch (const CLI::ParseError& error) {
    if (argc == 1)
      throw UsageError("expected a command; " + program_command("--help") + " shows them");
    throw UsageError(misunderstanding(app, error, argc, argv));
  }
  configure_console(console);
  try {
    (void)default_timeout();
    (void)default_rendezvous_timeout();
  } catch (const Error& error) {  // these variables are as good as options
    throw UsageError(error.what());
  }
  return run();
}

}  // namespace ringgrad::program
