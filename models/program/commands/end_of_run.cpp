#include "ringgrad/models/program/commands/end_of_run.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <nlohmann/json.hpp>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/report/report.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kLossPoints = 120;  // of a whole run

std::string digest_of(const ImageDataset& set) {
  const Tensor& images = set.images;
  return fmt::format("{} images, {:016x}", set.size(),
                     hash_of(images.raw_data(), static_cast<size_t>(images.numel()) * itemsize(images.dtype())));
}

}  // namespace

std::vector<RankSummary> gather_ranks(const Training& training, Device device, ProcessGroup* group) {
  RankSummary own = training.clock().means();
  own.tensor_bytes = memory_stats(device).peak_bytes;
  own.resident_bytes = resident_bytes();
  const DistributedDataParallel* ddp = training.distributed();
  if (!group || !ddp) return {own};
  if (const ReductionTotals& totals = ddp->totals(); totals.steps > 0)
    own.sent_bytes = 2 * (group->size() - 1) * (totals.bytes / totals.steps) / group->size();
  std::vector<RankSummary> ranks;
  for (const std::string& text : gather_texts(*group, to_json(own).dump(), 0))
    ranks.push_back(rank_from_json(nlohmann::json::parse(text)));
  return ranks;
}

Course::Course(const Training& training)
    : training_(training), interval_(std::max<int64_t>(1, training.planned_steps() / kLossPoints)) {}

void Course::note_loss() {
  if (training_.step() % interval_ != 0 && !training_.at_epoch_end()) return;
  const int64_t images = training_.own_images();
  const double loss = training_.own_mean_loss() * static_cast<double>(images);
  if (images < images_before_) {  // another epoch
    images_before_ = 0;
    loss_before_ = 0;
  }
  if (images == images_before_) return;
  const double mean = (loss - loss_before_) / static_cast<double>(images - images_before_);
  const double epochs = static_cast<double>(training_.step()) / static_cast<double>(training_.steps_per_epoch());
  if (std::isfinite(mean)) loss_curve_.push_back({epochs, mean});
  images_before_ = images;
  loss_before_ = loss;
}

double Course::throttled() const {
  const ProcessorQuota now = processor_quota();
  const int64_t periods = now.periods - quota_before_.periods;
  return periods > 0 ? static_cast<double>(now.throttled - quota_before_.throttled) / static_cast<double>(periods) : 0;
}

Verdict end_run(const TrainOptions& options, const Data& data, const RunDirectory& run, const Course& course,
                const Training& training, std::vector<RankSummary> ranks, const Evaluation& last) {
  RunSummary summary;
  summary.steps = training.clock().steps();
  summary.steps_per_epoch = training.steps_per_epoch();
  summary.train_seconds = course.train_seconds;
  summary.test_seconds = course.test_seconds;
  summary.save_seconds = course.save_seconds;
  summary.images_per_second = course.images_per_second();
  summary.cores = static_cast<int>(std::thread::hardware_concurrency());
  summary.threads = cpu_cores();
  summary.workers = options.workers;
  summary.throttled = course.throttled();
  summary.memory_limit = memory_limit();
  summary.ranks = std::move(ranks);
  summary.histogram = histogram_of(training.clock().durations());
  summary.loss_curve = course.loss_curve();
  summary.classes = data.test_set.classes;
  summary.confusion = last.confusion;
  summary.worst = last.worst;
  summary.command = command_line();
  summary.machine = machine_name();
  summary.version = RINGGRAD_VERSION;
  summary.commit = checkout();
  summary.data_digest = digest_of(data.train_set);

  RunRecord record = read_run(run.path());
  record.notes.clear();
  record.take(std::move(summary));
  const Verdict verdict = judge(record);
  const std::filesystem::path report = run.path() / "report.html";
  try {
    write_summary(run.path(), *record.summary);
    if (options.report) write_report({record}, report, [&](const RunRecord&) { return &data.test_set; });
    if (options.report) result("report  {}", report.string());
  } catch (const IoError& error) {
    complain(fmt::format("note    the run is saved, its report is not: {}", error.what()));
  }
  result("verdict {}{}", verdict.name,
         verdict.also.empty() ? "" : fmt::format(" (also {})", fmt::join(verdict.also, ", ")));
  result("why     {}", verdict.why);
  message("next    {}", verdict.next);
  return verdict;
}

}  // namespace ringgrad::program
