// The state behind the emulated runtime API: devices with their memory accounts, streams as queues
// of closures, events as positions in them, graphs as recorded closures.
//
// An operation of a stream runs on whichever host thread makes it run: the one that queues it
// (eager) or the one that waits for it (lazy, random). The runtime's lock is never held meanwhile,
// because operations may meet each other, as the ranks of a collective do.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/include/cuda_runtime.h"

namespace ringgrad::emulator {

using Operation = std::function<void()>;  // may be called again: a graph replays it

struct Node {
  Operation operation;
  const char* name;        // "": a kernel or a copy; else a call of a library
  std::vector<int> after;  // nodes that must have run before
};

// A stream capture in progress. It begins on one stream and spreads to those that wait for its
// events.
struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<CUstream_st*> streams;
  std::vector<Node> nodes;
  bool invalid = false;
  bool ended = false;
};

struct Allocation {
  size_t bytes;
  int device;
};

struct DeviceState {
  std::atomic<bool> context = false;
  size_t used_bytes = 0;
  std::shared_ptr<CUstream_st> null_stream;
  // The first failure of an operation since the last wait that could report it; "" is none.
  std::string failure;
};

}  // namespace ringgrad::emulator

struct CUstream_st {
  int device = 0;
  std::deque<ringgrad::emulator::Operation> queue;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  bool running = false;
  std::shared_ptr<ringgrad::emulator::Capture> capture;
  bool helped = false;        // a thread of its own runs its next operation
  std::vector<int> frontier;  // while capturing: the nodes that the next one must follow
};

struct CUevent_st {
  int device = 0;
  bool timed = true;
  // The stream on which it was recorded last; nullptr: never.
  std::shared_ptr<CUstream_st> stream;
  // It is complete when the stream has completed that many operations.
  uint64_t position = 0;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  // The capture in which it was recorded.
  std::shared_ptr<ringgrad::emulator::Capture> capture;
  std::vector<int> frontier;
};

struct CUgraph_st {
  std::vector<ringgrad::emulator::Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<ringgrad::emulator::Node>> nodes;
};

namespace ringgrad::emulator {

class Runtime {
 public:
  // Never destroyed: tensors with static storage duration are freed late.
  static Runtime& instance();

  // Guards everything below and the structures above.
  std::mutex mutex;
  std::condition_variable progress;
  std::vector<DeviceState> devices;
  // By their first byte.
  std::map<uintptr_t, Allocation> allocations;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  // Bytes that a kernel may have on a device, for those that were asked about.
  std::map<std::pair<const void*, int>, size_t> shared_bytes;
  std::vector<std::shared_ptr<Capture>> captures;
  std::minstd_rand random;

  // The allocation that contains `memory`, or nullptr.
  const Allocation* find(const void* memory, uintptr_t* begin = nullptr);
  // The handle nullptr means the current device's null stream. For one that is no stream returns
  // nullptr, which the call answers with cudaErrorInvalidResourceHandle. The second is for callers
  // without the lock.
  std::shared_ptr<CUstream_st> stream(const char* call, CUstream_st* handle);
  std::shared_ptr<CUstream_st> find_stream(const char* call, CUstream_st* handle);

  // Queues an operation (or records it, while capturing) and runs it when streams are eager.
  // Returns cudaSuccess, or what an operation that ran meanwhile failed with. Takes the lock.
  cudaError_t submit(const std::shared_ptr<CUstream_st>& stream, Operation operation,
                     const char* name = "");
  // Runs the stream's operations until `position` of them are complete. Takes the lock. Throws
  // NotReady.
  void drain(const std::shared_ptr<CUstream_st>& stream, uint64_t position);
  void drain_all(const std::shared_ptr<CUstream_st>& stream);
  void drain_device(int device);
  // One operation of the stream, which somebody asks about, and never waits for it: without this a
  // lazy stream would not be ready ever for a program that asks again and again. What may have to
  // wait goes on beside. Takes the lock.
  void advance(const std::shared_ptr<CUstream_st>& stream);

 private:
  Runtime();
  bool run_another_stream(std::unique_lock<std::mutex>& lock, const CUstream_st& stream);
  // Runs operations that need not wait; returns whether all of them have run.
  bool drain_without_waiting(const std::shared_ptr<CUstream_st>& stream, uint64_t position);
};

// The graph that this thread has instantiated last, as long as that lives: for who wants to look
// into it.
extern constinit thread_local std::weak_ptr<const std::vector<Node>> newest_graph;

// An operation that drain_without_waiting() runs must not wait for anything: what it waits for may
// be what the thread is in the middle of, or what another rank has chosen likewise. It throws
// NotReady instead, before it has any effect, and has its turn later.
struct NotReady {};
bool must_not_wait();  // whether this thread runs such an operation

// The calling thread's device, 0 at first. Like any call that needs it, makes its context, where it
// has none yet.
int current_device();
bool has_context(int device);
// Remembers the error for cudaGetLastError and the detail for cudaGetErrorString; returns the
// error.
cudaError_t fail(cudaError_t error, const std::string& detail = "");
// Returns the error that each call gives if config().device_lost, otherwise cudaSuccess.
cudaError_t refuse_if_lost();
// Reports and forgets the failure of a device's operation, if any.
cudaError_t take_failure(int device);
// Calls that a capture forbids: returns cudaErrorStreamCaptureUnsupported and spoils the capture,
// or cudaSuccess. The first is about a call that is only possibly unsafe, so that the modes of
// threads and captures decide; the others about one that waits for a stream or a device as well,
// which no mode allows where it is being captured.
cudaError_t forbid_while_capturing(const char* call);
cudaError_t forbid_while_capturing(const char* call, const CUstream_st& stream);
cudaError_t forbid_while_capturing(const char* call, int device);

}  // namespace ringgrad::emulator
