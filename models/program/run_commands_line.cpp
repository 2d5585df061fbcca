// The command line of what is about runs, `report`, `compare`, `watch` and `runs`, and of the other kinds of training.
#include "ringgrad/core/base/environment.h"
#include "ringgrad/models/program/command_line_parts.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/report/report.h"

namespace ringgrad::program {

void add_run_commands(CLI::App& app, Run& run) {
  auto* report_app = app.add_subcommand("report", "One HTML page about a run, or several side by side");
  auto& page = options_of(report_app, report, run);
  report_app->add_option("runs", page.runs, "run directories")->required();
  report_app->add_option("--out", page.out, "the file (default: report.html in the first run's directory)");
  report_app->footer("Example\n  " + program_command("report 1 2 --out both.html"));

  auto* compare_app = app.add_subcommand("compare", "Which part of a step made the difference between two runs");
  auto& two = options_of(compare_app, compare, run);
  compare_app->add_option("a", two.a, "a run directory")->required();
  compare_app->add_option("b", two.b, "another")->required();

  auto* watch_app = app.add_subcommand("watch", "Live curves of a run, until it has ended, and then its verdict");
  watch_app->add_option("run", options_of(watch_app, watch, run).run, "a run directory, or latest")->required();

  auto* runs_app = app.add_subcommand("runs", "The runs that there are, what they came to, and how they differ");
  auto& all = options_of(runs_app, runs, run);
  runs_app->add_option("directory", all.directory, "where they lie")->capture_default_str();
  runs_app->add_option("--sort", all.sort, "by name, accuracy, time or speed")->capture_default_str();
}

void add_data_dir_option(CLI::App* app, std::string& directory) {
  app->add_option("--data-dir", directory, "where data sets lie (default: $RINGGRAD_DATA_DIR, else data/files)");
}

namespace {

void add_gan(CLI::App& app, Run& run) {
  auto* gan_app = app.add_subcommand("gan", "Train a network that draws, against one that is not to be deceived");
  auto& o = options_of(gan_app, gan, run);
  gan_app->add_option("--data", o.data, recipe_field("data").help)->capture_default_str();
  add_data_dir_option(gan_app, o.data_dir);
  gan_app->add_option("--batch", o.batch, "images a step, over all ranks")->capture_default_str()->check(kPositive);
  gan_app->add_option("--epochs", o.epochs, "passes over the data")->capture_default_str()->check(kPositive);
  gan_app->add_option("--lr", o.lr, "of Adam, for both networks")->capture_default_str()->check(CLI::PositiveNumber);
  gan_app->add_option("--seed", o.seed, "of weights, noise and order")->capture_default_str();
  gan_app->add_option("--ranks", o.ranks, "processes that share each batch")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  gan_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-gan)");
  gan_app->add_option("--resume", o.resume, "continue this run from its last checkpoint, bit for bit");
  gan_app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")->check(kNotNegative);
}

void add_reinforce(CLI::App& app, Run& run) {
  auto* cart_app = app.add_subcommand("reinforce", "Learn to balance a pole on a cart");
  auto& o = options_of(cart_app, reinforce, run);
  cart_app->add_option("--episodes", o.episodes, "at most, over all ranks")->capture_default_str()->check(kPositive);
  cart_app->add_option("--lr", o.lr, "of Adam")->capture_default_str()->check(CLI::PositiveNumber);
  cart_app->add_option("--seed", o.seed, "of weights, carts and chance")->capture_default_str();
  cart_app->add_option("--ranks", o.ranks, "processes, each with a cart")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  cart_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-cartpole)");
  cart_app->add_option("--resume", o.resume, "continue this run from its last checkpoint, bit for bit");
  cart_app->add_option("--max-steps", o.max_steps, "save and stop after so many episodes")->check(kNotNegative);
}

}  // namespace

void add_other_training(CLI::App& app, Run& run) {
  add_gan(app, run);
  add_reinforce(app, run);
}

}  // namespace ringgrad::program
