// Where a training run's batches come from: on CUDA from the data set in the device's memory, else from a loader's
// threads. The same batches either way.
#pragma once

#include <memory>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/data_loader.h"

namespace ringgrad::program {

// `images`: what the network reads, and where. A data set that takes more than half of the device's free memory stays
// on the host, which one line on stderr says.
std::unique_ptr<BatchSource> training_batches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler,
                                              const DataLoaderOptions& options, TensorOptions images);

}  // namespace ringgrad::program
