// The end of a training run: what it has measured of itself goes into its directory, and becomes a verdict and a
// report.
#pragma once

#include "ringgrad/models/program/commands/train_rank.h"
#include "ringgrad/models/program/report/verdict.h"
#include "ringgrad/models/program/run/machine.h"
#include "ringgrad/models/program/run/summary.h"
#include "ringgrad/models/program/train/training.h"

namespace ringgrad::program {

// The course of a call of `train`, on one rank; a resumed run counts anew.
class Course {
 public:
  explicit Course(const Training& training);

  // After every step: a point of the loss curve now and then, from this rank's images. Looking waits for a GPU.
  void note_loss();

  int64_t steps = 0, images = 0;
  double train_seconds = 0, test_seconds = 0, save_seconds = 0;
  double images_per_second() const { return train_seconds > 0 ? static_cast<double>(images) / train_seconds : 0; }
  const std::vector<std::array<double, 2>>& loss_curve() const { return loss_curve_; }
  double throttled() const;  // the part of the scheduler's periods since then in which a quota was spent

 private:
  const Training& training_;
  const int64_t interval_;
  std::vector<std::array<double, 2>> loss_curve_;
  int64_t images_before_ = 0;
  double loss_before_ = 0;
  ProcessorQuota quota_before_ = processor_quota();
};

// Collective. What every rank has measured; on the first one, that is, empty on others.
std::vector<RankSummary> gather_ranks(const Training& training, Device device, ProcessGroup* group);

// Writes summary.json, and unless --no-report report.html, and says the verdict. `last` is what the latest test found,
// if it was not interrupted. A disk that is full costs these files only: the run itself is saved.
Verdict end_run(const TrainOptions& options, const Data& data, const RunDirectory& run, const Course& course,
                const Training& training, std::vector<RankSummary> ranks, const Evaluation& last);

}  // namespace ringgrad::program
