// BatchPartSampler: each rank uses consecutive samples of every global batch.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// Selects a rank's consecutive part of every global batch, such as its shards
// (distributed/virtual_ranks.h).
class BatchPartSampler : public Sampler {
 public:
  struct Part {
    // rows [begin, end) of a batch
    int64_t begin;
    int64_t end;
  };
  using PartOf = std::function<Part(int64_t batch)>;  // the rank's part of a batch of this size

  // In global batch number b, this rank uses places b · batch + part_of(batch) of the epoch's
  // shuffled order. The last batch may be smaller; its part is part_of(its size). A loader's
  // batches have the size of the part. Throws Error unless batch >= 1 and a whole batch has a part.
  BatchPartSampler(int64_t dataset_size, int64_t batch, PartOf part_of, uint64_t seed);

  // REQUIRES: the position is at the beginning of a global batch. Throws IndexError if it lies
  // outside the epoch.
  std::vector<int64_t> indices(const SamplerState& at) const override;
  int64_t size() const override;
  int64_t used_by_all(int64_t own) const override { return own / own_batch_ * batch_; }

 private:
  int64_t dataset_size_;
  int64_t batch_;
  PartOf part_of_;
  int64_t own_batch_;
};

}  // namespace ringgrad
