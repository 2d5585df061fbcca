// Operations recorded once and run again with one call, which saves the host what queueing each of them costs. On CUDA
// that cost, not the device, limits the training of small networks.
#pragma once

#include "ringgrad/core/stream.h"

namespace ringgrad {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues one replay on a stream of the graph's device. Replays of one graph follow each other.
  virtual void launch(Stream stream) const = 0;
};

}  // namespace ringgrad
