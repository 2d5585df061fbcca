// The interface from which training takes its batches. Every implementation delivers them in the
// form that the network needs, on its device.
#pragma once

#include <cstdint>
#include <span>

#include "ringgrad/data/batch.h"
#include "ringgrad/data/sampler.h"

namespace ringgrad {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Starts the sampler's next pass. Its first batch becomes the current one.
  virtual void start_pass() = 0;
  // Moves on to the pass's next batch.
  virtual void advance() = 0;
  // Returns the samples of the current batch, or none after the last batch.
  virtual std::span<const int64_t> indices() const = 0;
  // Returns the current batch. REQUIRES: there is one.
  virtual Batch current() = 0;
  // Returns true if current() only queues work for the device, the same for each full batch. Then a
  // step can be captured.
  virtual bool on_device() const = 0;
  // Returns how long this thread has waited for batches, over all passes.
  virtual double waited_seconds() const = 0;

  // Returns the position from which training continues after the current batch; see
  // DataLoader::state().
  virtual SamplerState state() const = 0;
  virtual void load_state(const SamplerState& state) = 0;
};

}  // namespace ringgrad
