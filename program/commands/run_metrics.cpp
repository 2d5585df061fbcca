#include "ringgrad/program/commands/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/report/run_record.h"
#include "ringgrad/program/run/build.h"
#include "ringgrad/program/trace/one_clock.h"
#include "ringgrad/program/trace/perfetto.h"
#include "ringgrad/program/trace/timeline_svg.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kLossPoints = 120;  // for a whole run
// From one step that is looked at to the next: looking costs a percent.
constexpr int64_t kLeastProfileSteps = 10;
constexpr int64_t kMeasured = 10;  // steps that say something
constexpr int64_t kMostTraced = 50;

std::string digest_of(const ImageDataset& set) {
  const Tensor& images = set.images;
  return fmt::format("{} images, {:016x}", set.size(), hash_of(images.raw_data(), images.nbytes()));
}

void check_traced(const TracedSteps& asked, const Training& training) {
  if (asked == TracedSteps{}) return;
  if (asked.last > training.planned_steps() || asked.first <= training.step())
    throw UsageError("--trace-steps {}:{}: the run takes steps {} to {}", asked.first, asked.last,
                     training.step() + 1, training.planned_steps());
  if (!training.can_be_watched())
    throw UsageError(
        "--trace-steps sees nothing of steps with --parallel dp, with --shards, "
        "or that are captured, which RINGGRAD_CUDA_GRAPHS=0 prevents");
}

}  // namespace

TracedSteps traced_steps_from(const std::string& words) {
  const size_t colon = std::min(words.find(':'), words.size() - 1);
  const TracedSteps steps{parse_number<int64_t>(words.substr(0, colon)).value_or(0),
                          parse_number<int64_t>(words.substr(colon + 1)).value_or(0)};
  if (steps.first < 1 || steps.last < steps.first)
    throw UsageError("--trace-steps is '{}', expected FIRST:LAST, such as 20:22", words);
  if (steps.last - steps.first >= kMostTraced)
    throw UsageError("--trace-steps {}: {} steps, expected at most {}", words,
                     steps.last - steps.first + 1, kMostTraced);
  return steps;
}

RunMetrics::RunMetrics(const TrainOptions& options, const RunConfig& config, const Data& data,
                       Training& training, const RunDirectory* run, ProcessGroup* group)
    : options_(options),
      config_(config),
      data_(data),
      training_(training),
      run_(run),
      group_(group),
      device_(config.parallel_config->device),
      loss_steps_(std::max<int64_t>(1, training.planned_steps() / kLossPoints)),
      profile_steps_(std::max(kLeastProfileSteps, loss_steps_)) {
  check_traced(options.trace_steps, training);
  if (run)
    logbook_.emplace(*run, training, config.recipe.step_batch(), options.log_every,
                     options.tensorboard);
  training.set_on_part([this](Part part) {
    if (recorder_) recorder_->begins(kParts[static_cast<size_t>(part)]);
  });
}

RunMetrics::~RunMetrics() { training_.set_on_part({}); }

void RunMetrics::save_so_far() {
  // The numbers of all ranks are known since the last epoch.
  const bool known = !now_.ranks.empty() || training_.clock().steps() < kMeasured;
  if (!run_ || known) return;
  now_ = {training_.clock().steps(), {own_measurements()}};
  save_summary({});
}

// A disk that is full, or a limit of the process, costs the file, and end_run() says so.
void RunMetrics::save_summary(const Evaluation& last) {
  try {
    write_summary(run_->path(), summarize(last, false));
  } catch (const Error&) {
  }
}

void RunMetrics::begin_epoch() {
  if (logbook_) logbook_->begin_epoch();
  look_at_next_step(false);
}

void RunMetrics::after_step(bool stops) {
  ++steps;
  const int64_t step = training_.step();
  const bool traced = step >= options_.trace_steps.first && step <= options_.trace_steps.last;
  const bool over = stops || training_.at_epoch_end();
  if (recorder_) recorder_->end_step();
  if (recorder_ && !traced) {
    recorder_->pause();
    kernels_.add(recorder_->take());
    recorder_.reset();
  }
  if (traced && over) recorder_->pause();
  if (run_ && device_.is_cpu() && (step % loss_steps_ == 0 || over))
    if (const auto loss = loss_.look(training_))
      loss_curve_.push_back(
          {static_cast<double>(step) / static_cast<double>(training_.steps_per_epoch()), *loss});
  if (logbook_) logbook_->after_step();
  if (traced && (step == options_.trace_steps.last || stops)) write_trace();
  if (stops && step < options_.trace_steps.first)
    message("note    step {} was the last one: --trace-steps has nothing to show", step);
  look_at_next_step(over);
}

// A step that is traced is noted on all ranks, others on the first one alone, and without their
// buckets.
void RunMetrics::look_at_next_step(bool stops) {
  const int64_t next = training_.step() + 1;
  if (stops) return;
  if (next >= options_.trace_steps.first && next <= options_.trace_steps.last) {
    if (!recorder_)
      recorder_ = std::make_unique<StepRecorder>(training_.model(), training_.distributed());
    training_.loading().set_on(true);
    recorder_->start();
  } else if (run_ && device_.is_cpu() && next % profile_steps_ == 0 && training_.can_be_watched()) {
    recorder_ = std::make_unique<StepRecorder>(training_.model(), nullptr);
    recorder_->start();
  }
}

void RunMetrics::write_trace() {
  recorder_->pause();
  StepRecord own = recorder_->take();
  recorder_.reset();
  training_.loading().set_on(false);
  own.loading = slices_of(training_.loading());
  const std::vector<StepRecord> records =
      group_ ? on_one_clock(std::move(own), *group_) : std::vector{std::move(own)};
  if (!run_) return;
  const std::string title =
      fmt::format("{} on {} · batch {} on {} rank{} · steps {} to {}", config_.recipe.model,
                  config_.recipe.data, config_.recipe.step_batch(), records.size(),
                  records.size() > 1 ? "s" : "", options_.trace_steps.first, training_.step());
  write_text(run_->path() / "trace.json", perfetto_trace(records).dump() + "\n");
  write_text(run_->path() / "timeline.svg", timeline_svg(title, records));
  message("trace   {} (open it in ui.perfetto.dev), timeline.svg",
          (run_->path() / "trace.json").string());
}

RankSummary RunMetrics::own_measurements() const {
  RankSummary own = training_.clock().means();
  own.tensor_bytes = memory_stats(device_).peak_bytes;
  own.resident_bytes = resident_bytes();
  if (const int replicas = config_.parallel_config->replicas(); replicas > 1) {
    for (int i = 0; i < replicas; ++i)
      own.device_bytes.push_back(memory_stats(Device(device_.type, device_.index + i)).peak_bytes);
    for (const Tensor& parameter : training_.model().parameters())  // out, and their gradients in
      own.sent_bytes += 2 * (replicas - 1) * parameter.numel() *
                        static_cast<int64_t>(itemsize(parameter.dtype()));
  }
  if (const DistributedDataParallel* ddp = training_.distributed(); ddp && ddp->totals().steps > 0)
    own.sent_bytes =
        2 * (group_->size() - 1) * (ddp->totals().bytes / ddp->totals().steps) / group_->size();
  return own;
}

void RunMetrics::gather() {
  before_ = std::move(now_);
  now_ = {training_.clock().steps(), {}};
  if (!group_ || !training_.distributed()) {
    now_.ranks = {own_measurements()};
    return;
  }
  for (const std::string& text : all_gather_texts(*group_, to_json(own_measurements()).dump()))
    if (group_->is_main_process()) now_.ranks.push_back(rank_from_json(json_from(text)));
}

double RunMetrics::throttled() const {
  const ProcessorQuota now = processor_quota();
  const int64_t periods = now.periods - quota_before_.periods;
  return periods > 0 ? static_cast<double>(now.throttled - quota_before_.throttled) /
                           static_cast<double>(periods)
                     : 0;
}

// Means cover all steps so far. The difference to the previous line gives those since then.
void RunMetrics::end_epoch(nlohmann::json line, const Evaluation& test) {
  const int64_t steps_since = now_.steps - before_.steps;
  for (size_t r = 0; r < now_.ranks.size() && steps_since > 0; ++r) {
    const RankSummary none;
    const RankSummary& now = now_.ranks[r];
    const RankSummary& before = r < before_.ranks.size() ? before_.ranks[r] : none;
    const auto since = [&](double mean, double mean_before) {
      const double sum =
          mean * static_cast<double>(now_.steps) - mean_before * static_cast<double>(before_.steps);
      return std::round(std::max(0.0, sum / static_cast<double>(steps_since)) * 1e6) / 1e3;
    };
    for (size_t p = 0; p < kParts.size(); ++p)
      line["step_ms"][kParts[p]].push_back(since(now.seconds[p], before.seconds[p]));
    line["busy_ms"].push_back(since(now.processor, before.processor));
    line["starved_ms"].push_back(since(now.starved, before.starved));
  }
  if (steps_since > 0) {
    line["measured_steps"] = steps_since;
    line["learning_rate"] = training_.lr();
    if (device_.is_cpu()) line["gradient_norms"] = gradient_norms(training_.model());
  }
  logbook_->write(line);
  epochs_.push_back(std::move(line));
  save_summary(test);
}

// A resumed run has been measured before. Its earlier loss curve is continued, and a few new steps
// do not replace many old ones.
void RunMetrics::keep_earlier(RunSummary& summary) const {
  constexpr int64_t kFewSteps = 10;
  if (!earlier_) return;
  const RunSummary& before = *earlier_;
  const double begin = summary.loss_curve.empty() ? INFINITY : summary.loss_curve.front()[0];
  const auto end = std::find_if(before.loss_curve.begin(), before.loss_curve.end(),
                                [&](const auto& point) { return point[0] >= begin; });
  summary.loss_curve.insert(summary.loss_curve.begin(), before.loss_curve.begin(), end);
  if (summary.confusion.empty()) {
    summary.confusion = before.confusion;
    summary.worst = before.worst;
  }
  if (summary.steps >= std::min(kFewSteps, before.steps)) return;
  summary.steps = before.steps;
  summary.ranks = before.ranks;
  summary.histogram = before.histogram;
  summary.kernels = before.kernels;
  summary.throttled = before.throttled;
  summary.images_per_second = before.images_per_second;
}

RunSummary RunMetrics::summarize(const Evaluation& last, bool ended) {
  if (fixed_.version.empty()) {
    fixed_.steps_per_epoch = training_.steps_per_epoch();
    fixed_.cores = static_cast<int>(std::thread::hardware_concurrency());
    fixed_.threads = cpu_cores();
    fixed_.workers = options_.workers;
    fixed_.memory_limit = memory_limit();
    fixed_.classes = data_.test_set.classes;
    fixed_.command = command_line();
    fixed_.machine = machine_name();
    fixed_.commit = build_commit();
    fixed_.data_digest = digest_of(data_.train_set);
    fixed_.version = RINGGRAD_VERSION;
    if (run_ && !options_.resume.empty()) earlier_ = read_run(run_->path().string()).summary;
  }
  RunSummary summary = fixed_;
  summary.ended = ended;
  summary.steps = now_.steps;
  summary.ranks = now_.ranks;
  summary.train_seconds = train_seconds;
  summary.test_seconds = test_seconds;
  summary.save_seconds = save_seconds;
  summary.images_per_second = images_per_second();
  summary.throttled = throttled();
  summary.histogram = histogram_of(training_.clock().durations());
  summary.kernels = kernels_.medians();
  summary.loss_curve = loss_curve_;
  summary.confusion = last.confusion;
  summary.worst = last.worst;
  for (ImageResult& image : summary.worst)
    if (const auto index = static_cast<size_t>(image.index); index < data_.test_files.size())
      image.file = data_.test_files[index];
  keep_earlier(summary);
  return summary;
}

}  // namespace ringgrad::program
