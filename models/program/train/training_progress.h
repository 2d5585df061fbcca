// Where a training run stands, as far as its checkpoint says it in words: all but the tensors.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/data/sampler.h"
#include "ringgrad/models/program/run/recipe.h"

namespace ringgrad::program {

struct TrainingProgress {
  int64_t step = 0;               // over all epochs
  int64_t images = 0;             // of the epoch under way, or of the one that has just ended
  std::vector<double> loss_sums;  // over those images, one for each rank
  ShardDigest used_images;        // the same images, of all ranks together
  SamplerState sampler;
  std::vector<std::string> ready_order;  // of gradients; see DistributedDataParallel::ready_order()
  Recipe recipe;
};

std::string to_text(const TrainingProgress& progress);
// Throws DataError, in words that follow a file's name, where something lacks, where a run of this recipe over so many
// images cannot stand there, or where the recipe is another one.
TrainingProgress progress_from(const std::string& text, const Recipe& recipe, int64_t train_size);

}  // namespace ringgrad::program
