// The command line of `report`, `compare` and `runs`.
#include "ringgrad/core/base/environment.h"
#include "ringgrad/models/program/command_line_parts.h"
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

  auto* runs_app = app.add_subcommand("runs", "The runs that there are, what they came to, and how they differ");
  auto& all = options_of(runs_app, runs, run);
  runs_app->add_option("directory", all.directory, "where they lie")->capture_default_str();
  runs_app->add_option("--sort", all.sort, "by name, accuracy, time or speed")->capture_default_str();
}

}  // namespace ringgrad::program
