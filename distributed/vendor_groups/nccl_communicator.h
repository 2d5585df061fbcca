// NcclCommunicator: the ranks' NCCL communicator, the stream on which its transfers are queued, and
// the threads that watch both.
//
// NCCL's kernels wait forever for a rank that has died. So a thread gives `host` up when queued
// work is not done in time, the hosts miss a rank, or NCCL reports an error. The other ranks then
// learn the reason. The thread also ends the communicator, which ends the device's work. Every
// later call throws the reason.
//
// That thread never calls CUDA. A call of CUDA may wait for one of another thread, which waits for
// the device, which waits for the rank that has died. Whether the device has done its work is asked
// by a second thread, and only that one waits if CUDA does not answer.
//
// If the device's work does not end even then, or a call of CUDA or NCCL does not return, every
// waiter for the device would wait forever. So after `last_resort` the process ends, and says why.
//
// ncclCommAbort and ncclCommDestroy return only when the last graph with recorded collectives of
// the communicator is gone (NCCL's init.cc, commDestroySync: localPersistentRefs); abort first
// tells the device's work to end. So it is the last call of the watching thread, and the owner of
// the graph can release it meanwhile. Graphs keep the communicator alive by their hooks
// (DeviceBackend::on_replay).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "ringgrad/distributed/process_group.h"

struct ncclComm;

namespace ringgrad {

namespace cuda {
class Event;
class OwnedStream;
}  // namespace cuda

// Ends the process if an activity that has begun does not end within the limit. Asks nothing of
// CUDA, whose calls may be the ones that do not return.
class LastResort {
 public:
  explicit LastResort(std::chrono::milliseconds limit);
  ~LastResort();
  void begin(std::string words, ExitCode code);  // the last ones, not empty
  void again();                                  // the activity's time begins anew
  void end();

 private:
  void look_on();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable stopped_;
  std::string words_;  // "": nothing has begun
  ExitCode code_ = kTrainingFailed;
  int64_t turn_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// Thread-safe.
class NcclCommunicator {
 public:
  // Collective: rank 0's name for the ranks reaches the others through `host`. Throws TimeoutError
  // when NCCL has not connected the ranks in time, CudaError when it cannot.
  NcclCommunicator(std::shared_ptr<ProcessGroup> host, Device device,
                   std::chrono::milliseconds timeout, std::chrono::milliseconds last_resort);
  // Waits for the work under way until its deadline. After an exception it waits until the device
  // has ended the work.
  ~NcclCommunicator();

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  Stream stream() const;

  // Runs `body`, which queues work after the caller's stream and returns the stream on which the
  // work ends: stream(), or one that waits for it. Returns an event that marks that end. All ranks
  // must queue in the same order. Before that the hosts `meet`; if that fails, the group is given
  // up for the same reason. The work must be done within `timeout` (0: the communicator's), counted
  // from the end of the work queued before. Otherwise the error calls it `what`. While a step is
  // captured the work is only recorded, and only the hosts have a deadline.
  std::shared_ptr<cuda::Event> queue(const std::string& what, std::chrono::milliseconds timeout,
                                     const std::function<Work()>& meet,
                                     const std::function<Stream()>& body);
  // Returns true if the capture under way has recorded work of this communicator.
  bool recorded() const;
  // In the body of queue(): the calls of NCCL that `calls` makes go on together, as one operation
  // of stream().
  void together(const std::function<void(ncclComm*)>& calls);
  // Throws CudaError for the result of a call of NCCL (an ncclResult_t), unless it succeeded or is
  // in progress.
  void check(int result, const char* call) const;

  void throw_if_failed();
  // As ProcessGroup::failure().
  std::optional<Failure> failure();
  // Tells the other ranks, and makes the device end its part of the work under way. Only the first
  // failure counts. `noticed` says that it is another rank's.
  void give_up(const Failure& failure, bool noticed = false);

 private:
  struct UnderWay {
    std::string what;
    std::chrono::milliseconds timeout;
    std::chrono::steady_clock::time_point deadline;
    bool recorded;  // nothing happens on the device
    Work agreed = {};
    std::shared_ptr<cuda::Event> done = {};  // nullptr: still being issued, or passed
    bool passed = false;                     // `done` is, or nothing happens on the device
  };

  void connect();
  std::string reason() const;
  int state_of(ncclComm* comm);
  void settle(const char* call);
  void watch();
  std::optional<Failure> look();
  void ask();
  std::optional<Failure> failure_of_hosts() const;
  std::optional<Failure> blame() const;
  void see_the_end(const std::deque<std::shared_ptr<UnderWay>>& under_way);

  const std::shared_ptr<ProcessGroup> host_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<cuda::OwnedStream> stream_;
  const int exceptions_at_birth_ = std::uncaught_exceptions();
  // Guards calls of NCCL. It is locked before mutex_, under which it is only tried.
  std::timed_mutex issue_mutex_;

  std::mutex mutex_;                 // guards the members below
  std::condition_variable changed_;  // for watcher_
  std::condition_variable issued_;   // for asker_
  std::condition_variable idle_;
  std::atomic<ncclComm*> comm_ = nullptr;  // nullptr after a failure
  ncclComm* failed_comm_ = nullptr;        // that watcher_ is to abort
  std::deque<std::shared_ptr<UnderWay>> pending_;
  std::optional<Failure> failure_;
  bool stop_ = false;
  LastResort last_resort_;
  std::thread watcher_;
  std::thread asker_;
};

}  // namespace ringgrad
