// What a device type provides besides kernels: memory, streams and a count.
// core/cpu/cpu_backend.cpp implements it for the CPU; cuda_kernels/runtime registers the one for
// CUDA, so that core never names CUDA.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "ringgrad/core/device.h"

namespace ringgrad {

constexpr int kMaxDevices = 64;  // of a type, so that tables of them need no lock

// Operations recorded once and run again with one call, which saves the host what queueing each of
// them costs. On CUDA that cost, not the device, limits the training of small networks.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues one replay on a stream of the graph's device. Replays of one graph follow each other.
  virtual void launch(Stream stream) const = 0;
};

// One replay of a graph, as it comes by those who take part in it on the host.
struct Replay {
  Stream stream;
  int64_t step = -1;  // what the program calls it, where one of them knows that, for those after it
};
// Is called in the place of each replay, on the thread that wants it, and calls `launch`, which
// goes on with the next hook, and after the last one queues the graph.
using ReplayHook = std::function<void(Replay& replay, const std::function<void()>& launch)>;

// A stretch of a stream's work, from start_timer() on, by the device's own clock where it has one:
// what the host takes to queue the work counts only where the device waits for it.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // Once: behind what has been queued by now.
  virtual void stop() = 0;
  // The time between start and stop; waits until the device has come there.
  virtual double milliseconds() = 0;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual int count() const = 0;
  // Words for people where count() is 0.
  virtual std::string why_none() const { return "none was found"; }
  // For people: the model of the card, say.
  virtual std::string describe(int index) const = 0;
  // Bytes aligned to at least 64. Returns nullptr when the device has no memory left. Thread-safe.
  virtual void* allocate(int index, size_t bytes) = 0;
  // Returns false, without any effect, if the memory cannot be freed at the moment. Thread-safe.
  virtual bool deallocate(int index, void* data, size_t bytes) = 0;
  // Bytes that allocate could still give, more or less.
  virtual size_t free_memory(int index) const = 0;
  virtual Stream default_stream(int index) = 0;
  virtual void synchronize(Stream stream) = 0;
  // Waits for the work that is queued on `stream`, so that its memory may be freed. Returns false
  // if the memory may not be freed: because a thread is capturing the stream, and a wait would
  // spoil the capture, or because a graph holds addresses of its memory.
  virtual bool settle(Stream stream) {
    synchronize(stream);
    return true;
  }
  // REQUIRES: the stream is not being captured.
  virtual std::unique_ptr<DeviceTimer> start_timer(Stream stream);
  // Records what `body` queues on the device's current stream, and runs nothing. Throws what body
  // throws, the device's error where body waits for it, and NotImplementedError where the device
  // type has no graphs.
  virtual std::unique_ptr<DeviceGraph> capture(int index, const std::function<void()>& body) = 0;
  // Whether this thread records what it queues instead of running it, so that nothing can be waited
  // for.
  virtual bool capturing() const { return false; }
  // For who records something that takes the host's part in each replay, too. Hooks are called in
  // the order in which they came, and live until the graph has been destroyed. REQUIRES:
  // capturing().
  virtual void on_replay(ReplayHook) {}
  // Keeps the blocks that were taken for `stream`, because the step that is being recorded holds
  // their addresses. REQUIRES: capturing().
  virtual void keep_memory(Stream) {}
};

// Registers the backend of a device type; called once, before main, by the file that implements it.
void register_backend(DeviceType type, DeviceBackend* backend);

// Throws DeviceError when the program was built without that device type.
DeviceBackend& device_backend(DeviceType type);

// A block of at least `bytes` for work on `stream`. A freed block is reused only on the stream it
// was allocated for, where order makes that safe without waiting. Throws OutOfMemoryError
// naming the current operation (core/error.h), the bytes and what is live. Thread-safe.
void* allocate(Stream stream, size_t bytes);
// The same stream and bytes as at allocate.
void deallocate(Stream stream, void* data, size_t bytes);

// Who gives out memory: the backends themselves, or what has registered (core/device/allocator.h).
struct Allocator {
  void* (*allocate)(Stream stream, size_t bytes);
  void (*deallocate)(Stream stream, void* data, size_t bytes);
};
void register_allocator(Allocator allocator);

}  // namespace ringgrad
