#include "ringgrad/program/commands/end_of_run.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/program/commands/fits.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/report/report.h"

namespace ringgrad::program {
namespace {

// A batch that was too large leaves room for steps of an eighth and a quarter of it. Other ranks
// wait meanwhile, and no step may take long.
constexpr int64_t kPartOfBatch = 8;
constexpr double kSecondsToPredict = 10;
// A run has the next batches in memory beside its step, and blocks of other sizes.
constexpr double kForTheStep = 0.9;

// Returns the row of the run's own way to train: its options in the words of predicted_fits().
std::string way_of(const RunConfig& config, int ranks) {
  const ParallelConfig& parallel = *config.parallel_config;
  std::vector<std::string> words;
  if (config.recipe.dtype != "fp32") words.push_back("--dtype " + config.recipe.dtype);
  if (!parallel.recompute.empty()) words.push_back("--recompute blocks");
  if (parallel.replicas() > 1)
    words.push_back(fmt::format("--parallel dp --ranks {}", parallel.replicas()));
  if (ranks > 1) words.push_back(fmt::format("--ranks {}", ranks));
  if (parallel.zero > 0) words.push_back(fmt::format("--zero {}", parallel.zero));
  return fmt::format("{}", fmt::join(words, " "));
}

// Returns the options that take the run's steps in parts that fit, or "" if there are none.
std::string accumulated(const Fit& fit, const Recipe& recipe, int processes) {
  for (int64_t parts = 2; parts <= recipe.batch; ++parts) {
    const int64_t batch = recipe.batch / parts;
    if (recipe.batch % parts == 0 && batch % processes == 0 && batch <= fit.batch)
      return fmt::format("\n--batch {} --accumulate {} takes the same steps, of {} images", batch,
                         parts * recipe.accumulate, recipe.step_batch());
  }
  return "";
}

}  // namespace

Verdict end_run(const TrainOptions& options, const Data& data, const RunDirectory& run,
                RunMetrics& run_metrics, const Evaluation& last) {
  RunRecord record = read_run(run.path());
  record.notes.clear();
  record.state = RunRecord::Ended;  // as it will be read
  record.take(run_metrics.summarize(last, true));
  const Verdict verdict = judge(record);
  const std::filesystem::path report = run.path() / "report.html";
  try {
    write_summary(run.path(), *record.summary);
    if (options.report)
      write_report({record}, report, [&](const RunRecord&) { return &data.test_set; });
    if (options.report) news("report  {}", report.string());
  } catch (const IoError& error) {
    complain(fmt::format("note    the run is saved, its report is not: {}", error.what()));
  }
  news("verdict {}{}", verdict.name,
       verdict.also.empty() ? "" : fmt::format(" (also {})", fmt::join(verdict.also, ", ")));
  news("why     {}", verdict.why);
  // The command to resume has been said.
  if (verdict.next != resume_command(run)) message("next    {}", verdict.next);
  return verdict;
}

std::string what_fits(const OutOfMemoryError& error, const RunConfig& config, int ranks) {
  const Recipe& recipe = config.recipe;
  const ParallelConfig& parallel = *config.parallel_config;
  const Device device(parallel.device);
  const int processes = std::max(ranks, parallel.replicas());
  double bytes = 0;
  for (int i = 0; i < (device.is_cpu() ? parallel.replicas() : 1); ++i)
    bytes +=
        kForTheStep * static_cast<double>(memory_stats({device.type, device.index + i}).peak_bytes);
  const FitOptions options{
      .model = recipe.model,
      .images = models::ModelOptions{.in_channels = config.facts.channels,
                                     .num_classes = std::ssize(config.facts.classes),
                                     .image_size = config.facts.image_size},
      .memory = static_cast<uint64_t>(std::max(bytes, 1e6)),
      .optimizer = recipe.optimizer,
      .ranks = std::max(2, processes),
      .device = device.is_cpu() ? "cpu" : "cuda"};
  const std::string memory = fmt::format("{}MB", options.memory / 1'000'000);
  std::string text = error.what();
  try {
    empty_cache(device);  // its blocks have the run's sizes
    const int64_t small = std::max<int64_t>(2, recipe.batch / processes / kPartOfBatch);
    const std::vector<Fit> fits = predicted_fits(options, small, kSecondsToPredict);
    if (!fits.empty())
      text += fmt::format(
          "\nThe largest batch whose step needs {}, {:.0f} % of what a process had for tensors, by "
          "small steps:\n{}",
          memory, 100 * kForTheStep, fmt::join(lines_of(fits), "\n"));
    for (const Fit& fit : fits)
      if (fit.options == way_of(config, ranks)) text += accumulated(fit, recipe, processes);
  } catch (const Error&) {  // not even that fits
  }
  if (CapturedStep::possible(device) && parallel.shards == 0 && parallel.replicas() == 1)
    text += "\nCaptured steps keep memory of their own: RINGGRAD_CUDA_GRAPHS=0 captures none";
  return text + fmt::format(
                    "\n`ringgrad fit --model {} --optimizer {} --memory {} --ranks {} --device "
                    "{}` measures the largest batch for one process and for several ranks, with "
                    "--zero, --dtype bf16, --recompute and --accumulate",
                    options.model, options.optimizer, memory, options.ranks, options.device);
}

}  // namespace ringgrad::program
