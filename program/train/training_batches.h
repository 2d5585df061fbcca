// Where the batches of a run come from: which images are this rank's, and who brings them.
#pragma once

#include <memory>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/train/loading_log.h"

namespace ringgrad::program {

// Of a step: each of the batches that it accumulates is cut into --shards.
int shards_of_step(const RunConfig& config);

// Images of this rank in a full batch.
int64_t own_batch(const RunConfig& config, const ProcessGroup* group);

// The same global batches on any number of ranks, augmented as the recipe says: on CUDA from the
// data set in the device's memory, unless that takes more than half of what is free there, else
// from a loader's threads, of which `log` hears what they do.
std::unique_ptr<BatchSource> training_batches(const RunConfig& config, const ImageDataset& dataset,
                                              const ProcessGroup* group, int workers,
                                              const std::shared_ptr<LoadingLog>& log);

}  // namespace ringgrad::program
