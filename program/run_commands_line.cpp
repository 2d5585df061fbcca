// The command line of what is about runs, `report`, `compare`, `watch` and `runs`, of the other
// kinds of training, and `lint`.
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/command_line_parts.h"
#include "ringgrad/program/commands/commands.h"
#include "ringgrad/program/report/report.h"

namespace ringgrad::program {

void add_run_commands(CLI::App& app, Run& run) {
  auto* report_app =
      app.add_subcommand("report", "One HTML page about a run, or several side by side");
  auto& page = options_of(report_app, report, run);
  report_app->add_option("runs", page.runs, "run directories")->required();
  report_app->add_option("--out", page.out,
                         "the file (default: report.html in the first run's directory)");
  report_app->footer("Example\n  " + program_command("report 1 2 --out both.html"));

  auto* compare_app =
      app.add_subcommand("compare", "Which part of a step made the difference between two runs");
  auto& two = options_of(compare_app, compare, run);
  compare_app->add_option("a", two.a, "a run directory")->required();
  compare_app->add_option("b", two.b, "another")->required();

  auto* watch_app =
      app.add_subcommand("watch", "Live curves of a run, until it has ended, and then its verdict");
  watch_app->add_option("run", options_of(watch_app, watch, run).run, "a run directory, or latest")
      ->required();

  auto* runs_app =
      app.add_subcommand("runs", "The runs that there are, what they came to, and how they differ");
  auto& all = options_of(runs_app, runs, run);
  runs_app->add_option("directory", all.directory, "where they lie")->capture_default_str();
  runs_app->add_option("--sort", all.sort, "by name, accuracy, time or speed")
      ->capture_default_str();
}

void add_data_dir_option(CLI::App* app, std::string& directory) {
  app->add_option("--data-dir", directory, "where data sets lie (`data list` says it)");
}

namespace {

// What a run keeps from its beginning on, so that --resume goes without it.
void add_whole_life(CLI::App* app, const std::vector<const char*>& settings,
                    const char* shards_help, auto& o) {
  app->add_option("--shards", o.shards, shards_help)
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxShards));
  auto* resume = app->add_option("--resume", o.resume,
                                 "continue this run from its last checkpoint, bit for bit");
  for (const char* name : settings) resume->excludes(app->get_option(name));
  resume->excludes(app->get_option("--shards"));
}

void add_gan(CLI::App& app, Run& run) {
  auto* gan_app =
      app.add_subcommand("gan", "Train a generator against a discriminator: a network that draws");
  auto& o = options_of(gan_app, gan, run);
  gan_app->add_option("--data", o.data, "digits, shapes, mnist, cifar10 or cifar100")
      ->capture_default_str();
  add_data_dir_option(gan_app, o.data_dir);
  gan_app->add_option("--batch", o.batch, "images a step, over all ranks")
      ->capture_default_str()
      ->check(kPositive);
  gan_app->add_option("--epochs", o.epochs, "passes over the data")
      ->capture_default_str()
      ->check(kPositive);
  gan_app->add_option("--lr", o.lr, "of Adam, for both networks")
      ->capture_default_str()
      ->check(check_above_zero);
  gan_app->add_option("--seed", o.seed, "of weights, noise and order")->capture_default_str();
  gan_app->add_option("--ranks", o.ranks, "processes that share each batch")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  gan_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-gan)");
  add_whole_life(gan_app, {"--data", "--batch", "--epochs", "--lr", "--seed", "--out"},
                 "parts of each batch; they decide the bits, whatever the ranks (0: the ranks do)",
                 o);
  gan_app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")
      ->check(kNotNegative);
}

void add_reinforce(CLI::App& app, Run& run) {
  auto* cart_app = app.add_subcommand("reinforce", "Learn to balance a pole on a cart");
  auto& o = options_of(cart_app, reinforce, run);
  cart_app->add_option("--episodes", o.episodes, "at most, over all ranks")
      ->capture_default_str()
      ->check(kPositive);
  cart_app->add_option("--lr", o.lr, "of Adam")->capture_default_str()->check(check_above_zero);
  cart_app->add_option("--seed", o.seed, "of weights, carts and chance")->capture_default_str();
  cart_app->add_option("--ranks", o.ranks, "processes, each with a cart or more")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRanks));
  cart_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-cartpole)");
  add_whole_life(cart_app, {"--episodes", "--lr", "--seed", "--out"},
                 "environments; they decide the bits, whatever the ranks (0: one for each rank)",
                 o);
  cart_app->add_option("--max-steps", o.max_steps, "save and stop after so many episodes")
      ->check(kNotNegative);
}

void add_lint(CLI::App& app, Run& run) {
  auto* lint_app = app.add_subcommand(
      "lint", "Usual mistakes of training on several ranks, in a program of yours");
  auto& o = options_of(lint_app, lint, run);
  o.job.num_processes = 0;
  lint_app
      ->add_option("-n,--ranks", o.job.num_processes,
                   "start so many ranks of it (default: it starts its own)")
      ->check(CLI::Range(1, kMaxRanks));
  lint_app->add_option(
      "--from", o.from,
      "run nothing: judge what ranks wrote to this directory, their RINGGRAD_LINT");
  lint_app->add_option("command", o.job.command, "-- PROGRAM ARGUMENTS");
  lint_app->footer("Example\n  " + program_command("lint -n 2 -- ./train --epochs 1"));
}

}  // namespace

void add_other_training(CLI::App& app, Run& run) {
  add_lint(app, run);
  add_gan(app, run);
  add_reinforce(app, run);
}

}  // namespace ringgrad::program
