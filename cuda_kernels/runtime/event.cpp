#include "ringgrad/cuda_kernels/runtime/event.h"

#include "ringgrad/cuda_kernels/runtime/check.h"
#include "ringgrad/cuda_kernels/runtime/device_guard.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {

Event::Event(Device device, bool timed) : device_(device) {
  const DeviceGuard guard(device);
  CUDA_CHECK(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}

void Event::record(Stream stream) {
  const DeviceGuard guard(device_);
  CUDA_CHECK(cudaEventRecord(event_, native(stream)));
}
void Event::block(Stream stream) const {
  const DeviceGuard guard(stream.device);
  CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_, 0));
}
void Event::synchronize() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  CUDA_CHECK(status);
  return true;
}

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.event_, event_));
  return milliseconds;
}

void wait_for(Stream waiting, Stream producer) {
  if (waiting == producer) return;
  Event event(producer.device);
  event.record(producer);
  event.block(waiting);  // the wait keeps what it needs: the event may go at once
}

}  // namespace ringgrad::cuda
