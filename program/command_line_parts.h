// What the files of the command line share: each of them takes seconds to compile, because of
// CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "ringgrad/core/base/text.h"

namespace ringgrad::program {

using Run = std::function<int()>;

// A command's options, which live as long as the parser; `run` becomes the command once it is
// named. Where Options has a set `named`, it then holds the names of what was given, such as
// "--out"; without those in groups.
template <class Options>
Options& options_of(CLI::App* app, int (*command)(const Options&), Run& run) {
  const auto options = std::make_shared<Options>();
  app->callback([=, &run] {
    if constexpr (requires { options->named; })
      for (const CLI::Option* option : app->get_options())
        if (option->count() > 0) options->named.insert(option->get_name());
    run = [=] { return command(*options); };
  });
  return *options;
}

void add_data_dir_option(CLI::App* app, std::string& directory);
void add_device_option(CLI::App* app, std::string& device);
void add_backend_option(CLI::App* app, std::string& backend);
void add_bench(CLI::App& app, Run& run);
void add_run_commands(CLI::App& app, Run& run);    // report, compare, watch, runs
void add_other_training(CLI::App& app, Run& run);  // gan, reinforce, lint

inline const CLI::Range kPositive(1, std::numeric_limits<int>::max(), "POSITIVE");
inline const CLI::Range kNotNegative(0, std::numeric_limits<int>::max(), "NONNEGATIVE");
// Returns "" for a positive number, however small, and otherwise what is wrong with it.
inline std::string check_above_zero(const std::string& value) {
  return parse_number<double>(value).value_or(0) > 0
             ? ""
             : "is " + value + ", expected a positive number";
}

}  // namespace ringgrad::program
