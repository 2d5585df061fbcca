#include "ringgrad/core/device/timer.h"

#include <chrono>

namespace ringgrad {
namespace {

// Times devices that have no clock of their own. It reads the host's clock at moments when the
// stream has finished all its work.
class HostTimer final : public DeviceTimer {
 public:
  explicit HostTimer(Stream stream) : stream_(stream) {
    synchronize(stream_);
    start_ = Clock::now();
  }
  void stop() override {
    synchronize(stream_);
    stop_ = Clock::now();
  }
  double milliseconds() override {
    return std::chrono::duration<double, std::milli>(stop_ - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Stream stream_;
  Clock::time_point start_;
  Clock::time_point stop_;
};

}  // namespace

std::unique_ptr<DeviceTimer> start_timer(Stream stream) {
  if (auto timer = device_backend(stream.device.type).start_timer(stream)) return timer;
  return std::make_unique<HostTimer>(stream);
}

}  // namespace ringgrad
