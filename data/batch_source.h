// Where training takes its batches from. Whoever makes them: they come as the network wants them,
// on its device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringgrad/core/tensor.h"
#include "ringgrad/data/sampler.h"

namespace ringgrad {

// What a data loader hands to training: one batch of samples.
struct Batch {
  // [B, C, H, W] of an image data set: float32 from a DataLoader, else as asked for.
  Tensor data = {};
  // int64 [B]; of a Dataset what its samples have.
  Tensor target = {};
  // [B]: which samples of the data set these are.
  std::vector<int64_t> indices = {};
  // The number at the end that only repeat others (Sampler::padding).
  int64_t padding = 0;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Starts the sampler's next pass: its first batch is the current one.
  virtual void start_pass() = 0;
  // Goes on to the pass's next batch.
  virtual void advance() = 0;
  // The samples of the current batch; none behind the last one.
  virtual std::span<const int64_t> indices() const = 0;
  // The current batch. REQUIRES: there is one.
  virtual Batch current() = 0;
  // Whether current() only queues work for the device, the same for each full batch: then a step
  // can be captured.
  virtual bool on_device() const = 0;
  // How long this thread has waited for batches, over all passes.
  virtual double waited_seconds() const = 0;

  // Where training goes on after the current batch; see DataLoader::state().
  virtual SamplerState state() const = 0;
  virtual void load_state(const SamplerState& state) = 0;
};

}  // namespace ringgrad
