#include "ringgrad/program/commands/end_of_run.h"

#include <algorithm>

#include "ringgrad/core/device/allocator.h"

#include "ringgrad/program/console/console.h"
#include "ringgrad/program/report/report.h"

namespace ringgrad::program {

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
  const Device device(config.parallel_config->device);
  const int64_t megabytes = memory_stats(device).peak_bytes / 1'000'000;
  return fmt::format(
      "{}\n`ringgrad fit --model {} --optimizer {} --memory {}MB --ranks {} --device {}` lists the "
      "largest batch for one process and for several ranks, with --zero, --dtype bf16, "
      "--recompute and --accumulate",
      error.what(), config.recipe.model, config.recipe.optimizer, std::max<int64_t>(1, megabytes),
      std::max(2, ranks), device.is_cpu() ? "cpu" : "cuda");
}

}  // namespace ringgrad::program
