// The state of the emulated runtime API: devices with their memory accounts, streams as queues of
// closures, events as positions in them, and graphs as recorded closures.
//
// A stream's operation runs on the host thread that queues it (eager) or that waits for it (lazy,
// random). The runtime's lock is never held meanwhile, because operations may wait for each other,
// as the ranks of a collective do.
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
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/include/cuda_runtime.h"

namespace ringgrad::emulator {

using Operation = std::function<void()>;  // may be called again: a graph replays it

struct Node {
  Operation operation;
  const char* name;        // "" for a kernel or a copy; otherwise a library's call
  std::vector<int> after;  // nodes that must run before
};

// A stream capture in progress. It begins on one stream and spreads to streams that wait for its
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
  // The first failure of an operation, which every later call returns; nullptr: none.
  std::atomic<const std::string*> failure = nullptr;
};

}  // namespace ringgrad::emulator

struct CUstream_st {
  int device = 0;
  std::deque<ringgrad::emulator::Operation> queue;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  bool running = false;
  std::shared_ptr<ringgrad::emulator::Capture> capture;
  bool helped = false;        // a separate thread runs its next operation
  std::vector<int> frontier;  // while capturing: the nodes that the next one must follow
};

struct CUevent_st {
  int device = 0;
  bool timed = true;
  // The stream on which it was recorded last; nullptr if never.
  std::shared_ptr<CUstream_st> stream;
  // The event is complete when the stream has completed this many operations.
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
  // Never destroyed, because tensors with static storage duration are freed late.
  static Runtime& instance();

  // Guards everything below and the structures above.
  std::mutex mutex;
  std::condition_variable progress;
  std::vector<DeviceState> devices;
  // Keyed by the first byte.
  std::map<uintptr_t, Allocation> allocations;
  // Page-locked memory of the host, keyed by the first byte: bytes.
  std::map<uintptr_t, size_t> page_locked;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  // The bytes of shared memory that a kernel may use on a device, if it requested them.
  std::map<std::pair<const void*, int>, size_t> shared_bytes;
  // Kernels that may have clusters of more than 8 blocks on a device.
  std::set<std::pair<const void*, int>> large_clusters;
  std::vector<std::shared_ptr<Capture>> captures;
  std::minstd_rand random;

  // Returns the allocation that contains `memory`, or nullptr.
  const Allocation* find(const void* memory, uintptr_t* begin = nullptr);
  // nullptr stands for the current device's null stream. For a handle that is not a stream these
  // return nullptr, and the call then returns cudaErrorInvalidResourceHandle. The second is for
  // callers without the lock.
  std::shared_ptr<CUstream_st> stream(const char* call, CUstream_st* handle);
  std::shared_ptr<CUstream_st> find_stream(const char* call, CUstream_st* handle);

  // Queues an operation (or records it while capturing), and runs it if streams are eager. Returns
  // cudaSuccess, or the error of an operation that ran meanwhile. Takes the lock.
  cudaError_t submit(const std::shared_ptr<CUstream_st>& stream, Operation operation,
                     const char* name = "");
  // Runs the stream's operations until `position` of them are complete. Takes the lock. Throws
  // NotReady.
  void drain(const std::shared_ptr<CUstream_st>& stream, uint64_t position);
  void drain_all(const std::shared_ptr<CUstream_st>& stream);
  void drain_device(int device);
  // Runs one operation of a stream that a program queries, without waiting for it. Otherwise a lazy
  // stream would never become ready for a program that only queries. An operation that may have to
  // wait continues on another thread. Takes the lock.
  void advance(const std::shared_ptr<CUstream_st>& stream);

 private:
  Runtime();
  bool run_another_stream(std::unique_lock<std::mutex>& lock, const CUstream_st& stream);
  // Runs operations that need not wait. Returns true if all of them have run.
  bool drain_without_waiting(const std::shared_ptr<CUstream_st>& stream, uint64_t position);
};

// The graph that this thread instantiated last, as long as it exists; for inspection.
extern constinit thread_local std::weak_ptr<const std::vector<Node>> newest_graph;

// An operation that drain_without_waiting() runs must not wait. It might wait for an operation that
// this thread has begun and not finished, or that another rank has chosen in the same way. It
// throws NotReady instead, before it has any effect, and runs later.
struct NotReady {};
bool must_not_wait();  // true if this thread runs such an operation

// Returns the calling thread's device, initially 0. Like any call that needs it, creates its
// context if it does not exist.
int current_device();
bool has_context(int device);
// Remembers the error for cudaGetLastError and the detail for cudaGetErrorString. Returns the
// error.
cudaError_t fail(cudaError_t error, const std::string& detail = "");
// Returns the error of every call on a device that is lost: an operation has failed there, or
// config().device_lost. Otherwise cudaSuccess.
cudaError_t refuse_if_lost(int device);
cudaError_t refuse_if_lost();  // the current device
// Waits while another thread's call holds the device; see Config::pageable_copies_hold.
void wait_for_holder();
// For calls that a capture forbids: returns cudaErrorStreamCaptureUnsupported and invalidates the
// capture, or returns cudaSuccess. The first function is for calls that are only potentially
// unsafe, so that the modes of threads and captures decide. The others are for calls that wait for
// a stream or a device; no mode allows them while that is being captured.
cudaError_t forbid_while_capturing(const char* call);
cudaError_t forbid_while_capturing(const char* call, const CUstream_st& stream);
cudaError_t forbid_while_capturing(const char* call, int device);

}  // namespace ringgrad::emulator
