// Samplers decide which samples an epoch visits, in which order, and which of them are this rank's.
//
// An epoch's order is a pure function of (seed, epoch), the same on every machine and rank. So the
// whole state of a sampler is three numbers, and training can go on from the middle of an epoch, on
// another number of ranks too.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ringgrad/core/base/only.h"

namespace ringgrad {

struct SamplerState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;  // samples of this epoch's order that all ranks together have used
  bool operator==(const SamplerState&) const = default;
};

class Sampler {
 public:
  explicit Sampler(uint64_t seed = 0) : next_{seed, 0, 0} {}
  virtual ~Sampler() = default;

  // What this rank uses from `at` to the end of that epoch, in order.
  virtual std::vector<int64_t> indices(const SamplerState& at) const = 0;
  // How many there are in a whole epoch on this rank.
  virtual int64_t size() const = 0;
  // How many of the last ones repeat samples that some rank has already used, so that all ranks
  // have equally many. Leaving them out makes counts and metrics exact.
  virtual int64_t padding(const SamplerState&) const { return 0; }
  // Samples of the epoch's order used, by all ranks together, per sample used here.
  virtual int64_t num_replicas() const { return 1; }
  // Samples of the epoch's order that all ranks together have used when this one has used so many.
  virtual int64_t used_by_all(int64_t own) const { return own * num_replicas(); }

  // Which epoch the next pass is. Unless this is called, each pass is the epoch after the one
  // before, so forgetting it does not repeat the first epoch's order for ever. In the middle of
  // that very epoch the position stays.
  void set_epoch(Int64 epoch);

  // Where the next pass starts; the one after it is then the next epoch from its beginning. Called
  // by the loader.
  SamplerState start_pass();

  // To be saved by whoever iterates a sampler by hand; a DataLoader knows how far its consumer has
  // come.
  const SamplerState& state() const { return next_; }
  void load_state(const SamplerState& state);

 private:
  SamplerState next_;
};

// Unless shuffled: 0, 1, …, n-1. Shuffled: a permutation that (seed, epoch) decides, by the method
// of Fisher and Yates.
std::vector<int64_t> epoch_order(int64_t dataset_size, bool shuffle, uint64_t seed, int64_t epoch);

struct DistributedSamplerOptions {
  bool shuffle = true;
  // Must be the same on all ranks.
  uint64_t seed = 0;
  // Leaves out the last samples that do not go evenly into the ranks.
  bool drop_last = false;
  // Otherwise the first samples of the order are repeated until they do; false: some ranks have one
  // less.
  bool pad = true;
};

// How many samples rank r of n uses when so many are left for all; and which: from `position` of
// the epoch's order on, places r, r + n, r + 2n, …. REQUIRES: 0 <= position <= order.size().
int64_t samples_of_rank(int64_t left, int64_t num_replicas, int64_t rank,
                        const DistributedSamplerOptions& options);
std::vector<int64_t> share_of_rank(const std::vector<int64_t>& order, int64_t position,
                                   int64_t num_replicas, int64_t rank,
                                   const DistributedSamplerOptions& options);

// PyTorch's torch.utils.data.DistributedSampler: rank r of n uses places r, r + n, r + 2n, … of the
// epoch's order. Evaluation wants {.shuffle = false, .pad = false}: each sample exactly once.
class DistributedSampler : public Sampler {
 public:
  // Throws Error unless dataset_size >= 0, num_replicas >= 1 and 0 <= rank < num_replicas.
  DistributedSampler(Int64 dataset_size, Int64 num_replicas, Int64 rank,
                     DistributedSamplerOptions options = {});

  // Throws IndexError when the position lies outside the epoch.
  std::vector<int64_t> indices(const SamplerState& at) const override;
  int64_t size() const override;
  int64_t padding(const SamplerState& at) const override;
  int64_t num_replicas() const override { return num_replicas_; }

 private:
  int64_t remaining(const SamplerState& at) const;

  int64_t dataset_size_;
  int64_t num_replicas_;
  int64_t rank_;
  DistributedSamplerOptions options_;
};

class SequentialSampler : public DistributedSampler {
 public:
  explicit SequentialSampler(Int64 dataset_size)
      : DistributedSampler(dataset_size, 1, 0, {.shuffle = false}) {}
};

class RandomSampler : public DistributedSampler {
 public:
  explicit RandomSampler(Int64 dataset_size, uint64_t seed = 0)
      : DistributedSampler(dataset_size, 1, 0, {.seed = seed}) {}
};

}  // namespace ringgrad
