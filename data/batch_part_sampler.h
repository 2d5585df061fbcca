// BatchPartSampler: ranks that share each global batch as neighbours.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// A rank's neighbouring part of every global batch, such as its shards
// (distributed/virtual_ranks.h).
class BatchPartSampler : public Sampler {
 public:
  struct Part {
    // rows of a batch
    int64_t begin;
    int64_t end;
  };
  using PartOf = std::function<Part(int64_t batch)>;  // of so many samples

  // Places b · batch + part_of(batch) of the epoch's shuffled order, in each global batch number b;
  // of the last one, which may be smaller, what part_of() says of its size. A loader's batches are
  // the part's size. Throws Error unless batch >= 1 and a whole batch has a part.
  BatchPartSampler(int64_t dataset_size, int64_t batch, PartOf part_of, uint64_t seed);

  // REQUIRES: the position is at a global batch's beginning. Throws IndexError when it lies outside
  // the epoch.
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
