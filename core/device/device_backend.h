// The interface that a device type implements besides its kernels: memory, streams and a count.
// core/cpu/cpu_backend.cpp implements it for the CPU. cuda_kernels/runtime registers the one for
// CUDA, so that core never names CUDA.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ringgrad/core/device.h"

namespace ringgrad {

constexpr int kMaxDevices = 64;  // per type; tables of this size need no lock

// Operations that are recorded once and replayed with one call. A replay saves the host the cost of
// queueing each operation. On CUDA this cost, not the device, limits the training of small
// networks.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues one replay on a stream of the graph's device. Replays of one graph follow each other.
  virtual void launch(Stream stream) const = 0;
};

// How often a step was recorded or replayed (captured_step.h): tensors' versions do not count the
// writes of replays.
inline std::atomic<uint32_t> captured_runs = 0;

// One replay of a graph. It is passed to each hook that takes part in the replay on the host.
struct Replay {
  Stream stream;
  int64_t step = -1;  // the program's number for it, if a hook knows it; later hooks read it
};
// Called instead of each replay, on the thread that requests it. The hook must call `launch`, which
// calls the next hook. After the last hook it queues the graph.
using ReplayHook = std::function<void(Replay& replay, const std::function<void()>& launch)>;

// Measures a stream's work from start_timer() on, by the device's own clock if it has one. The
// host's time for queueing the work counts only if the device waits for it.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // Stops after the work that is queued now. REQUIRES: called once.
  virtual void stop() = 0;
  // Returns the time between start and stop. Waits until the device has reached the stop.
  virtual double milliseconds() = 0;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual int count() const = 0;
  // Returns a reason for the user if count() is 0.
  virtual std::string why_none() const { return "none was found"; }
  // Returns a description for the user, such as the model of the card.
  virtual std::string describe(int index) const = 0;
  // Returns bytes aligned to at least 64, or nullptr if the device has no memory left. Thread-safe.
  virtual void* allocate(int index, size_t bytes) = 0;
  // Returns false, without any effect, if the memory cannot be freed at the moment. Thread-safe.
  virtual bool deallocate(int index, void* data, size_t bytes) = 0;
  // Returns roughly how many bytes allocate() could still give.
  virtual size_t free_memory(int index) const = 0;
  virtual Stream default_stream(int index) = 0;
  virtual void synchronize(Stream stream) = 0;
  // Waits for the work that is queued on `stream`, so that its memory may be freed. Returns false
  // if the memory may not be freed. That is so if a thread is capturing the stream, because a wait
  // would invalidate the capture, or if a graph holds addresses of its memory.
  virtual bool settle(Stream stream) {
    synchronize(stream);
    return true;
  }
  // Returns nullptr if the device has no clock of its own; start_timer() (timer.h) has another one
  // then. REQUIRES: the stream is not being captured.
  virtual std::unique_ptr<DeviceTimer> start_timer(Stream) { return nullptr; }
  // Records what `body` queues on the device's current stream, without running it. Throws what body
  // throws, the device's error if body waits for the device, and NotImplementedError if the device
  // type has no graphs.
  virtual std::unique_ptr<DeviceGraph> capture(int index, const std::function<void()>& body) = 0;
  // Returns true if this thread records its work instead of running it. Then it cannot wait for the
  // device.
  virtual bool capturing() const { return false; }
  // Adds a hook for work that the host must do at each replay of the graph that is being recorded.
  // Hooks are called in the order in which they were added, but the outermost ones first. They live
  // as long as the graph. REQUIRES: capturing().
  virtual void on_replay(ReplayHook, bool /*outermost*/ = false) {}
  // Keeps the blocks that were taken for `stream`, because the step that is being recorded holds
  // their addresses. REQUIRES: capturing().
  virtual void keep_memory(Stream) {}
};

// Registers the backend of a device type. The file that implements it calls this once, before main.
void register_backend(DeviceType type, DeviceBackend* backend);

// Throws DeviceError if the program was built without that device type.
DeviceBackend& device_backend(DeviceType type);

// Returns a block of at least `bytes` for work on `stream`. A freed block is reused only on the
// stream for which it was allocated, because the order of that stream makes reuse safe without
// waiting. Throws OutOfMemoryError that names the current operation (core/error.h), the bytes and
// what is live. Thread-safe.
void* allocate(Stream stream, size_t bytes);
// REQUIRES: stream and bytes are those of allocate().
void deallocate(Stream stream, void* data, size_t bytes);

// The functions that allocate memory: those of the backends, or of a registered allocator
// (core/device/allocator.h).
struct Allocator {
  void* (*allocate)(Stream stream, size_t bytes);
  void (*deallocate)(Stream stream, void* data, size_t bytes);
};
void register_allocator(Allocator allocator);

}  // namespace ringgrad
