// The batches of a run: which images a rank gets, and which source brings them.
#pragma once

#include <memory>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/train/loading_log.h"

namespace ringgrad::program {

// Returns the number of shards of a step: each of the batches that it accumulates is cut into
// --shards.
int shards_of_step(const RunConfig& config);

// Returns the number of this rank's images in a full batch.
int64_t own_batch(const RunConfig& config, const ProcessGroup* group);

// Returns the same global batches on any number of ranks, augmented as the recipe says. On CUDA
// they come from the data set in the device's memory, unless that takes more than half of the free
// memory. Otherwise they come from a loader's threads, which report to `log`.
std::unique_ptr<BatchSource> training_batches(const RunConfig& config, const ImageDataset& dataset,
                                              const ProcessGroup* group, int workers,
                                              const std::shared_ptr<LoadingLog>& log);

}  // namespace ringgrad::program
