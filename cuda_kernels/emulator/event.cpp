// Emulated events. An event is a position in a stream's queue. A wait for it is an operation of the
// waiting stream that runs the recorded stream up to that position. So lazy streams make progress
// without threads.
#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

using namespace ringgrad::emulator;

namespace {

// Returns nullptr for a handle that is not an event; the call then returns
// cudaErrorInvalidResourceHandle. REQUIRES: the lock.
CUevent_st* find_event(Runtime& runtime, const char* call, cudaEvent_t handle) {
  current_device();
  if (const auto found = runtime.events.find(handle); found != runtime.events.end())
    return found->second.get();
  fail(cudaErrorInvalidResourceHandle, std::string(call) + " with an event that does not exist");
  return nullptr;
}

// Work that a capture recorded has not happened, so the host can neither wait for it nor query it.
cudaError_t refuse_captured(const CUevent_st& event) {
  event.capture->invalid = true;
  return fail(cudaErrorCapturedEvent);
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  auto& runtime = Runtime::instance();
  auto event = std::make_unique<CUevent_st>();
  event->device = current_device();
  event->timed = !(flags & cudaEventDisableTiming);
  *handle = event.get();
  std::lock_guard lock(runtime.mutex);
  runtime.events[*handle] = std::move(event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  if (!find_event(runtime, "cudaEventDestroy", handle)) return cudaErrorInvalidResourceHandle;
  runtime.events.erase(handle);
  return refuse_if_lost();
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  CUevent_st* event = find_event(runtime, "cudaEventRecord", handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  const auto stream = runtime.stream("cudaEventRecord", stream_handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->device != event->device)
    return fail(cudaErrorInvalidResourceHandle,
                ringgrad::str("cudaEventRecord of an event of device ", event->device,
                              " on a stream of device ", stream->device));
  event->stream = stream;
  event->capture = stream->capture;
  event->frontier = stream->frontier;
  if (event->capture) return cudaSuccess;  // in a graph an event is an edge, not a node
  event->position = stream->submitted + 1;
  event->time = std::make_shared<std::chrono::steady_clock::time_point>();
  lock.unlock();
  return runtime.submit(stream, [time = event->time] { *time = std::chrono::steady_clock::now(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  CUevent_st* event = find_event(runtime, "cudaStreamWaitEvent", handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  const auto stream = runtime.stream("cudaStreamWaitEvent", stream_handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!event->stream) return cudaSuccess;  // never recorded: nothing to wait for
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->invalid = true;
    return fail(cudaErrorStreamCaptureIsolation,
                "cudaStreamWaitEvent on an event recorded outside the capture");
  }
  if (event->capture && event->capture->ended) return refuse_captured(*event);
  if (event->capture) {
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->capture->streams.push_back(stream.get());
      stream->frontier.clear();
    }
    stream->frontier.insert(stream->frontier.end(), event->frontier.begin(), event->frontier.end());
    return cudaSuccess;
  }
  // The wait is for the last record before this call. A later record does not change it.
  const auto recorded_on = event->stream;
  const uint64_t position = event->position;
  lock.unlock();
  return runtime.submit(stream, [=] { Runtime::instance().drain(recorded_on, position); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const cudaError_t error = forbid_while_capturing("cudaEventSynchronize")) return error;
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  CUevent_st* event = find_event(runtime, "cudaEventSynchronize", handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) return refuse_captured(*event);
  if (!event->stream) return cudaSuccess;
  const auto stream = event->stream;
  const uint64_t position = event->position;
  lock.unlock();
  runtime.drain(stream, position);
  return refuse_if_lost(stream->device);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  wait_for_holder();
  if (const cudaError_t error = forbid_while_capturing("cudaEventQuery")) return error;
  auto& runtime = Runtime::instance();
  std::unique_lock lock(runtime.mutex);
  CUevent_st* event = find_event(runtime, "cudaEventQuery", handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture) return refuse_captured(*event);
  const auto stream = event->stream;
  if (!stream) return cudaSuccess;
  const bool passed = stream->completed >= event->position;
  lock.unlock();
  if (passed) return refuse_if_lost(stream->device);
  runtime.advance(stream);
  return fail(cudaErrorNotReady);  // remembered like an error
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle,
                                 cudaEvent_t end_handle) {
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  const CUevent_st* start = find_event(runtime, "cudaEventElapsedTime", start_handle);
  const CUevent_st* end = find_event(runtime, "cudaEventElapsedTime", end_handle);
  if (!start || !end) return cudaErrorInvalidResourceHandle;
  if (start->device != end->device)
    return fail(cudaErrorInvalidResourceHandle,
                "cudaEventElapsedTime between events of two devices");
  for (const CUevent_st* event : {start, end}) {
    if (!event->timed)
      return fail(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime of an event without timing");
    if (!event->time)
      return fail(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime of an event never recorded");
    if (event->stream->completed < event->position) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return cudaSuccess;
}
