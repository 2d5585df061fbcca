// One rank of a training run, from its first step to the last epoch's line.
#pragma once

#include "ringgrad/distributed/elastic_job.h"
#include "ringgrad/program/commands/train_data.h"
#include "ringgrad/program/commands/train_options.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

std::string resume_command(const RunDirectory& run);  // in a form that can be typed

// In an elastic job train_rank() is called for every generation of ranks.
struct ElasticRun {
  ElasticJob& job;
  TrainingState kept = {};  // the state of this rank after the generations before
  int64_t begun_at = -1;    // the step at which this call of `train` began; -1: not known yet
};

// Trains on this rank, one of several or the only one (`group` is nullptr then). `run` is nullptr
// on ranks that write nothing. Returns the exit code, which follows from the signal if one has
// ended the run. Throws training's exceptions.
int train_rank(const TrainOptions& options, const RunConfig& config, const Data& data,
               const RunDirectory* run, ProcessGroup* group, ElasticRun* elastic = nullptr);

}  // namespace ringgrad::program
