// CUDA events: the only way in which streams wait for each other.
#pragma once

#include <cuda_runtime.h>

#include "ringgrad/core/device.h"

namespace ringgrad::cuda {

// Movable, not copyable. Throws CudaError. With `timed`, elapsed times can be read; without, recording is cheaper.
class Event {
 public:
  explicit Event(Device device, bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_), device_(other.device_) { other.event_ = nullptr; }
  Event& operator=(Event&&) = delete;

  void record(Stream stream);       // a mark after everything queued on `stream`, which is on the event's device
  void block(Stream stream) const;  // what is queued on `stream` from now on waits for the mark; the host does not
  void synchronize() const;         // the host waits for the mark
  bool done() const;                // whether the mark has been passed
  // Milliseconds between two marks that have been passed. REQUIRES: both timed.
  float milliseconds_since(const Event& start) const;

 private:
  cudaEvent_t event_;
  Device device_;
};

// What is queued on `waiting` from now on runs after what is queued on `producer` by now. Nothing for equal streams.
void wait_for(Stream waiting, Stream producer);

}  // namespace ringgrad::cuda
