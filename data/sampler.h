// Samplers decide which samples an epoch visits, in which order, and which of them this rank uses.
//
// An epoch's order is a pure function of (seed, epoch), the same on every machine and rank. So the
// whole state of a sampler is three numbers. Training can continue from the middle of an epoch, on
// another number of ranks, too.
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
  int64_t position = 0;  // samples of this epoch's order used by all ranks together
  bool operator==(const SamplerState&) const = default;
};

class Sampler {
 public:
  explicit Sampler(uint64_t seed = 0) : next_{seed, 0, 0} {}
  virtual ~Sampler() = default;

  // Returns the samples that this rank uses from `at` to the end of that epoch, in order.
  virtual std::vector<int64_t> indices(const SamplerState& at) const = 0;
  // Returns the number of samples of a whole epoch on this rank.
  virtual int64_t size() const = 0;
  // Returns how many of the last samples repeat ones that some rank has already used, so that all
  // ranks have the same number. Leaving them out makes counts and metrics exact.
  virtual int64_t padding(const SamplerState&) const { return 0; }
  // Returns how many samples of the epoch's order all ranks use per sample of this rank.
  virtual int64_t num_replicas() const { return 1; }
  // Returns how many samples of the epoch's order all ranks have used when this one has used `own`.
  virtual int64_t used_by_all(int64_t own) const { return own * num_replicas(); }

  // Sets the epoch of the next pass. Without this call each pass is the epoch after the one before,
  // so forgetting it does not repeat the first epoch's order forever. If a pass is in the middle of
  // that epoch, the position is kept.
  void set_epoch(Int64 epoch);

  // Returns where the next pass starts. The pass after it will be the next epoch from its
  // beginning. The loader calls it.
  SamplerState start_pass();

  // The state to save if a program iterates a sampler by hand. A DataLoader has its own state(),
  // which knows how far its consumer has come.
  const SamplerState& state() const { return next_; }
  void load_state(const SamplerState& state);

 private:
  SamplerState next_;
};

// Returns 0, 1, …, n-1, or if shuffled a permutation that is a function of (seed, epoch), by the
// method of Fisher and Yates.
std::vector<int64_t> epoch_order(int64_t dataset_size, bool shuffle, uint64_t seed, int64_t epoch);

struct DistributedSamplerOptions {
  bool shuffle = true;
  // It must be the same on all ranks.
  uint64_t seed = 0;
  // Leaves out the last samples that do not divide evenly among the ranks.
  bool drop_last = false;
  // Without drop_last: repeats the first samples of the order until they divide evenly. False: some
  // ranks have one sample less.
  bool pad = true;
};

// samples_of_rank() returns the number of samples that rank r of n uses if `left` remain for all
// ranks. share_of_rank() returns them: from `position` of the epoch's order on, places r, r + n, r
// + 2n, …. REQUIRES: 0 <= position <= order.size().
int64_t samples_of_rank(int64_t left, int64_t num_replicas, int64_t rank,
                        const DistributedSamplerOptions& options);
std::vector<int64_t> share_of_rank(const std::vector<int64_t>& order, int64_t position,
                                   int64_t num_replicas, int64_t rank,
                                   const DistributedSamplerOptions& options);

// PyTorch's torch.utils.data.DistributedSampler: rank r of n uses places r, r + n, r + 2n, … of the
// epoch's order. Evaluation needs {.shuffle = false, .pad = false}, which gives each sample exactly
// once.
class DistributedSampler : public Sampler {
 public:
  // Throws Error unless dataset_size >= 0, num_replicas >= 1 and 0 <= rank < num_replicas.
  DistributedSampler(Int64 dataset_size, Int64 num_replicas, Int64 rank,
                     DistributedSamplerOptions options = {});

  // Throws IndexError if the position lies outside the epoch.
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
