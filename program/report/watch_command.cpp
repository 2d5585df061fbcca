// `ringgrad watch`: a run's curves while it trains.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>

#include <nlohmann/json.hpp>

#include "ringgrad/program/command.h"
#include "ringgrad/program/console/braille.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/report/other_run.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {
namespace {

struct WatchOptions {
  std::string run;
};

constexpr auto kEvery = std::chrono::milliseconds(250);

// With --json the document alone goes to stdout.
bool draws() { return on_terminal() && isatty(STDOUT_FILENO); }

const char* words_of(RunRecord::State state) {
  constexpr const char* words[] = {"ended", "training", "failed", "died"};
  return words[state];
}

// Takes the terminal's screen, and restores its contents at the end.
class Screen {
 public:
  Screen() { std::cout << "\033[?1049h\033[?25l" << std::flush; }
  ~Screen() { std::cout << "\033[?25h\033[?1049l" << std::flush; }
  Screen(const Screen&) = delete;

  static void show(const std::vector<std::string>& lines) {
    std::string frame = "\033[H";
    for (const std::string& line : lines)
      frame += (&line == &lines.front() ? "" : "\n") + line + "\033[K";
    std::cout << frame << "\033[J" << std::flush;
  }
};

// Returns " of 188", or "" before the first epoch has ended: until then no file says how many steps
// it has.
std::string of_all_steps(const RunRecord& run) {
  if (run.epochs.empty()) return "";
  return fmt::format(" of {}", run.epochs.back().step / run.epochs_done() * run.recipe.epochs);
}

std::string now_of(const RunRecord& run) {
  const double pace =
      run.steps.empty() || (!run.epochs.empty() && run.epochs.back().step > run.steps.back().step)
          ? run.images_per_second()
          : run.steps.back().images_per_second;
  const int64_t under_way =
      std::min(run.epochs_done() + (run.state == RunRecord::Running ? 1 : 0), run.recipe.epochs);
  std::string text =
      fmt::format("epoch {} of {}, step {}{} · {} img/s", under_way, run.recipe.epochs,
                  run.last_step(), of_all_steps(run), with_commas(static_cast<int64_t>(pace)));
  if (!run.epochs.empty()) text += fmt::format(" · {:.2f} % test accuracy", 100 * run.accuracy());
  return text;
}

std::vector<std::string> frame_of(const RunRecord& run, ScreenSize size) {
  BraillePlot loss;
  BraillePlot accuracy;
  loss.curves = {{"36", {}}, {"33", {}}};
  accuracy.curves = {{"32", {}}};
  for (const StepLine& line : run.steps)
    if (std::isfinite(line.loss))
      loss.curves[0].points.push_back({static_cast<double>(line.step), line.loss});
  for (const EpochLine& line : run.epochs) {
    const auto step = static_cast<double>(line.step);
    if (run.steps.empty()) loss.curves[0].points.push_back({step, line.loss});
    loss.curves[1].points.push_back({step, line.test_loss});
    accuracy.curves[0].points.push_back({step, line.test_accuracy});
  }
  const Verdict verdict = judge(run);
  std::vector<std::string> below =
      wrapped(fmt::format("{}: {}", verdict.name, printable(verdict.why)), size.columns);
  below.resize(std::min<size_t>(below.size(), 2));
  std::vector<std::string> lines = {printable(run.path).substr(0, size.columns - 12) + "  " +
                                    words_of(run.state)};
  for (const std::string& line : wrapped(now_of(run), size.columns)) lines.push_back(line);
  lines.emplace_back();
  const int room = size.rows - 3 - static_cast<int>(lines.size() + below.size());
  loss.logarithmic = accuracy.percent = true;
  // Clearing behind the last column would clear that one.
  loss.columns = accuracy.columns = size.columns - 1;
  loss.rows = run.epochs.size() > 1 ? room * 3 / 5 : room;
  accuracy.rows = room - loss.rows;

  const auto add = [&](const std::string& title, const BraillePlot& plot) {
    const std::vector<std::string> drawn = plot.lines();
    if (drawn.empty()) return;
    lines.push_back(title);
    lines.insert(lines.end(), drawn.begin(), drawn.end());
  };
  add("loss: " + in_colour("36", "training") + ", " + in_colour("33", "test"), loss);
  if (run.epochs.size() > 1) add(in_colour("32", "test accuracy"), accuracy);
  if (run.steps.empty() && run.epochs.empty())
    lines.push_back("no line yet; train --log-every 20 writes one every 20 steps");
  lines.insert(lines.end(), below.begin(), below.end());
  lines.resize(std::min<size_t>(lines.size(), size.rows));
  return lines;
}

// Prints the lines that are new since `shown`, for a pipe. Returns the numbers of lines shown now.
std::pair<size_t, size_t> print_new(const RunRecord& run, std::pair<size_t, size_t> shown) {
  auto [steps, epochs] = shown;
  // It has been resumed.
  if (steps > run.steps.size() || epochs > run.epochs.size()) steps = epochs = 0;
  while (steps < run.steps.size() || epochs < run.epochs.size()) {
    const bool step_first =
        steps < run.steps.size() &&
        (epochs == run.epochs.size() || run.steps[steps].step <= run.epochs[epochs].step);
    if (step_first) {
      const StepLine& line = run.steps[steps++];
      result("step={} loss={:.4f} img_s={:.0f} data_wait={:.3f}{}", line.step, line.loss,
             line.images_per_second, line.data_wait,
             line.comm_wait ? fmt::format(" comm_wait={:.3f}", *line.comm_wait) : "");
    } else {
      const EpochLine& line = run.epochs[epochs++];
      result("epoch={} step={} loss={:.4f} test_acc={:.4f} test_loss={:.4f} img_s={:.0f}",
             line.epoch, line.step, line.loss, line.test_accuracy, line.test_loss,
             line.images_per_second);
    }
  }
  return {steps, epochs};
}

// Follows the run until it ends or the user interrupts.
RunRecord follow(const std::string& path) {
  RunRecord run = read_run(path);
  std::optional<Screen> screen;
  std::pair<size_t, size_t> shown{};
  if (draws() && run.state == RunRecord::Running) screen.emplace();
  while (true) {
    if (screen)
      Screen::show(frame_of(run, screen_size()));
    else if (!draws())
      shown = print_new(run, shown);
    if (run.state != RunRecord::Running || interrupted()) return run;
    usleep(std::chrono::microseconds(kEvery).count());  // a signal ends it
    run = read_run(run.path);
  }
}

// Shows the lines of a run of another command than `train`, which has no verdict.
int watch_other(const std::string& path, const RunKind& kind) {
  OtherRun run = read_other_run(path, kind);
  for (size_t shown = 0;;) {
    for (shown = std::min(shown, run.lines.size()); shown < run.lines.size(); ++shown)
      result(as_pairs(run.lines[shown]));
    if (!run.running || interrupted()) break;
    usleep(std::chrono::microseconds(kEvery).count());
    run = read_other_run(run.path, kind);
  }
  const char* const state = run.running ? "training" : run.failure.empty() ? "ended" : "failed";
  result("{:<8}{}", state, run.failure.empty() ? "a run of " + kind : run.failure);
  print_json({{"run", run.path}, {"command", kind}, {"state", state}, {"lines", run.lines}});
  return interrupted() ? 128 + interrupted() : kOk;
}

// Draws the curves of a run until it has ended, and then prints its verdict. Without a terminal it
// prints lines. Returns 128 plus the signal that has ended the watching. Throws DataError.
int watch(const WatchOptions& options) {
  catch_interrupts();
  const std::string path = find_run(options.run, kAnyRun);
  const RunKind kind = kind_of(path);
  if (!kind.empty() && kind != kTrainingRun && kind != kBenchDdpRun) return watch_other(path, kind);
  const RunRecord run = follow(path);
  if (draws())  // what stays there
    for (const std::string& line : frame_of(run, screen_size())) result_in_colours(line);
  const Verdict verdict = judge(run);
  if (run.state == RunRecord::Running) {
    message("the run goes on; `watch` looks again");
  } else {
    sentence("{:<8}after step {} ({} of {}){}", words_of(run.state), run.last_step(),
             run.epochs_done(), counted(run.recipe.epochs, "epoch"),
             run.failure.empty() ? "" : ": " + run.failure);
    sentence("verdict {}", verdict.name);
    sentence("why     {}", verdict.why);
    message("next    {}", verdict.next);
  }
  print_json({{"run", run.path},
              {"state", words_of(run.state)},
              {"epochs", run.epochs_done()},
              {"step", run.last_step()},
              {"test_accuracy", run.accuracy_or_null()},
              {"verdict", to_json(verdict)}});
  return interrupted() ? 128 + interrupted() : kOk;
}

void add_options(CLI::App* app, WatchOptions& o) {
  app->add_option("run", o.run, "a run directory, or latest")->required();
}

const Command kWatch(130, "watch", "Live curves of a run, until it has ended, and then its verdict",
                     watch, add_options);

}  // namespace
}  // namespace ringgrad::program
