#include "ringgrad/program/command.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/core/base/text.h"

namespace ringgrad::program {
namespace {

std::vector<Command>& registered() {
  static std::vector<Command> commands;
  return commands;
}

std::string check_device_name(const std::string& name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string type = name.substr(0, colon);
  const std::string number = name.substr(colon);  // ":0"
  const bool numbered = number.size() >= 2 && number.size() <= 5 &&
                        number.find_first_not_of("0123456789", 1) == std::string::npos;
  return (type == "cpu" || type == "cuda") && (number.empty() || numbered)
             ? ""
             : fmt::format("'{}', expected cpu or cuda", name);
}

}  // namespace

Command::Command(int place, const char* name, const char* help, Add add)
    : place_(place), name_(name), help_(help), add_(std::move(add)) {
  registered().push_back(*this);
}

Command::Command(int place, const char* name, const char* help, std::string (*footer)())
    : Command(place, name, help, [=](CLI::App* app, Run&) {
        app->require_subcommand(1);
        if (footer) app->footer(footer());
      }) {}

void Command::add_all(CLI::App& app, Run& chosen) {
  std::sort(registered().begin(), registered().end(), [](const Command& a, const Command& b) {
    return std::tie(a.place_, a.name_) < std::tie(b.place_, b.name_);
  });
  for (const Command& command : registered()) {
    const size_t space = command.name_.find(' ');
    CLI::App* const above =
        space == std::string::npos ? &app : app.get_subcommand(command.name_.substr(0, space));
    command.add_(above->add_subcommand(command.name_.substr(space + 1), command.help_), chosen);
  }
}

void add_data_dir_option(CLI::App* app, std::string& directory) {
  app->add_option("--data-dir", directory, "where data sets lie (`data list` says it)");
}
void add_device_option(CLI::App* app, std::string& device) {
  app->add_option("--device", device, "cpu (the default) or cuda")->check(check_device_name);
}

std::string check_above_zero(const std::string& value) {
  return parse_number<double>(value).value_or(0) > 0
             ? ""
             : "is " + value + ", expected a positive number";
}

}  // namespace ringgrad::program
