#include "ringgrad/program/report/findings.h"

#include <filesystem>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/run/data_facts.h"

namespace ringgrad::program {
namespace {

bool names(const std::string& options, const std::string& option) {
  return (options + ' ').find(option + ' ') != std::string::npos;
}

// Returns the options beside the recipe that the same run needs.
std::string further_options(const RunRecord& run, const std::string& others) {
  std::string words;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!names(others, option)) words += fmt::format(" {} {}", option, shell_word(value));
  };
  const auto usual = std::filesystem::absolute(data_directory("")).lexically_normal();
  if (!run.data_dir.empty() && run.data_dir != usual && !is_own_data(run.recipe.data))
    add("--data-dir", run.data_dir);
  const nlohmann::json& config = run.config;
  if (const auto seed = config.find("seed"); seed != config.end() && *seed != 1)
    add("--seed", seed->dump());
  if (const auto init = config.find("init"); init != config.end() && init->is_string())
    add("--init", *init);
  if (run.parallel != "ddp" && config.contains("division")) add("--parallel", run.parallel);
  const bool usual_ranks = run.parallel == "none" || run.ranks == 2;
  if (!usual_ranks) add("--ranks", std::to_string(run.ranks));
  if (run.device != "cpu") add("--device", run.device);
  return words;
}

}  // namespace

std::string train_with(const RunRecord& run, const std::string& options) {
  return program_command(fmt::format("train {}{} {}", options_of(run.recipe, options),
                                     further_options(run, options), options));
}

std::string resume_of(const RunRecord& run) {
  return program_command("train --resume " + shell_word(run.path));
}
std::string eval_of(const RunRecord& run) {
  return program_command("eval " + shell_word(run.path) + " --confusion");
}

}  // namespace ringgrad::program
