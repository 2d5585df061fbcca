// Measures the work of any device.
#pragma once

#include <memory>

#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

// Starts a timer for the stream's work: one that reads the device's clock or, if it has none, the
// host's. REQUIRES: the stream is not being captured.
std::unique_ptr<DeviceTimer> start_timer(Stream stream);

}  // namespace ringgrad
