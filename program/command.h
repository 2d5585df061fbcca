// A command of the program. Its source has its name, help, options and function, and registers it.
// The command line consists of all registered commands.
//
//   void add_options(CLI::App* app, WatchOptions& o) {
//     app->add_option("run", o.run, "a run directory, or latest")->required();
//   }
//   const Command kWatch(130, "watch", "Live curves of a run", watch, add_options);
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>

namespace ringgrad::program {

class Command {
 public:
  // A command that was chosen, with its options; it returns the exit code (exit_code.h).
  using Run = std::function<int()>;

  // Commands are listed in the order of `place`. "bench ddp" is a command of `bench`, whose place
  // comes first. If Options has a set `named`, run() finds there the names of the options that were
  // given, such as "--out", but not those in groups.
  template <class Options>
  Command(
      int place, const char* name, const char* help, int (*run)(const Options&),
      std::type_identity_t<void (*)(CLI::App*, Options&)> add_options = [](CLI::App*, Options&) {})
      : Command(place, name, help, [=](CLI::App* app, Run& chosen) {
          const auto options = std::make_shared<Options>();  // lives as long as the parser
          app->callback([=, &chosen] {
            if constexpr (requires { options->named; })
              for (const CLI::Option* option : app->get_options())
                if (option->count() > 0) options->named.insert(option->get_name());
            // Its own commands have been chosen before.
            if (app->get_subcommands().empty()) chosen = [=] { return run(*options); };
          });
          add_options(app, *options);
        }) {}
  // A command that has commands, one of which must be named, and nothing else.
  Command(int place, const char* name, const char* help, std::string (*footer)() = nullptr);

  // Adds all that have registered, in their order. `chosen` becomes the one that is named.
  static void add_all(CLI::App& app, Run& chosen);

 private:
  using Add = std::function<void(CLI::App* app, Run& chosen)>;
  Command(int place, const char* name, const char* help, Add add);

  int place_;
  std::string name_;
  std::string help_;
  Add add_;
};

// ---- options that several commands have ---------------------------------------------------------

void add_data_dir_option(CLI::App* app, std::string& directory);
void add_device_option(CLI::App* app, std::string& device);

inline const CLI::Range kPositive(1, std::numeric_limits<int>::max(), "POSITIVE");
inline const CLI::Range kNotNegative(0, std::numeric_limits<int>::max(), "NONNEGATIVE");
// Returns "" for a positive number, however small, and otherwise the mistake.
std::string check_above_zero(const std::string& value);

}  // namespace ringgrad::program
