// Helpers of the tests of CUDA devices, emulated or real: the number of devices, the order in which
// an emulated one works, and the text of an error.
#pragma once

#include <string>

#include "ringgrad/core/device.h"
#include "ringgrad/core/error.h"
#include "ringgrad/tests/catch.h"
#ifdef RINGGRAD_CUDA_EMULATED
#include "ringgrad/cuda_kernels/emulator/config.h"
#endif

namespace ringgrad::test {

// Set if the running case has found too few devices for everything that it tests; catch_main.cpp
// counts such cases.
inline constinit bool left_something_out = false;

// Returns true if there are so many devices. If not, it reports that the case is left out; the case
// must then return.
inline bool enough_devices(int wanted) {
  const int present = device_count(DeviceType::CUDA);
  if (present < wanted) {
    WARN("left out: CUDA devices wanted: " << wanted << ", present: " << present);
    left_something_out = true;
  }
  return present >= wanted;
}
// Not the first device, unless it is the only one.
inline Device another_device() {
  return Device(DeviceType::CUDA, device_count(DeviceType::CUDA) > 1 ? 1 : 0);
}

#ifdef RINGGRAD_CUDA_EMULATED
using emulator::Schedule;
using emulator::StreamOrder;

// As long as these live: when the operations of streams run, and which thread of a block runs
// first.
class StreamOrderGuard {
 public:
  explicit StreamOrderGuard(StreamOrder order, uint32_t seed = emulator::config().streams_seed) {
    emulator::config().streams = order;
    emulator::config().streams_seed = seed;
  }
  ~StreamOrderGuard() { emulator::config() = before_; }

 private:
  const emulator::Config before_ = emulator::config();
};
class ScheduleGuard {
 public:
  explicit ScheduleGuard(Schedule schedule) { emulator::config().schedule = schedule; }
  ~ScheduleGuard() { emulator::config() = before_; }

 private:
  const emulator::Config before_ = emulator::config();
};

// As long as it lives, devices are as large as an H200. The number of multiprocessors decides how a
// kernel divides its work, and so how many launches it takes.
class LargeDevices {
 public:
  LargeDevices() {
    emulator::config().multiprocessors = 132;
    emulator::config().memory_bytes = size_t{8} << 30;
  }
  ~LargeDevices() { emulator::config() = before_; }

 private:
  const emulator::Config before_ = emulator::config();
};
#else
// A device has an order of its own: a case that asks for several runs as many times.
enum class Schedule : uint8_t { Forward, Reversed };
enum class StreamOrder : uint8_t { Eager, Lazy, Random };
struct StreamOrderGuard {
  explicit StreamOrderGuard(StreamOrder) {}
};
struct ScheduleGuard {
  explicit ScheduleGuard(Schedule) {}
};
struct LargeDevices {
  LargeDevices() {}
};
#endif

// Returns the message of the CudaError that `body` throws; "" if it throws none. Emulated devices
// are then as new.
template <class Body>
std::string failure(Body body) {
  try {
    body();
  } catch (const CudaError& error) {
#ifdef RINGGRAD_CUDA_EMULATED
    emulator::revive_devices();
#endif
    return error.what();
  }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ringgrad::test
