// What the NCCL process group stands on: the ranks' communicator, the stream on which its transfers
// are queued, and the thread that looks after both.
//
// NCCL's kernels wait forever for a rank that has died. So when something queued is not done in
// time, the hosts miss a rank, or NCCL reports an error, `host` is given up, so that the other
// ranks learn the reason, and the thread ends the communicator, on which the device's work ends.
// Every later call throws it.
//
// Where the device's work does not end even then, or a call of CUDA or NCCL does not return,
// whoever waits for the device would wait forever: after `last_resort` the process ends, and says
// why.
//
// ncclCommAbort and ncclCommDestroy return only when the last graph that has recorded the
// communicator's collectives is gone (NCCL's init.cc, commDestroySync: localPersistentRefs), abort
// after it has told the device's work to end. So the abort has a thread of its own, beside which
// who holds the graph can let it go; and graphs keep the communicator alive, by their hooks
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

// Ends the process where what has begun does not end within the limit. Asks nothing of CUDA, whose
// calls may be what does not return.
class LastResort {
 public:
  explicit LastResort(std::chrono::milliseconds limit);
  ~LastResort();
  void begin(std::string words, ExitCode code);  // the last ones, not empty
  void end();

 private:
  void look_on();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;  // guards what follows
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
  // Waits for what is under way: until its deadline, or where an exception is the end, until the
  // device has ended it.
  ~NcclCommunicator();

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  Stream stream() const;

  // Runs `body`, which queues work behind what the caller's stream holds, and returns the stream on
  // which it ends, which is stream(), or waits for that; the event marks the end. Before, the hosts
  // `meet`: where that work of theirs fails, the group is given up for the same reason. All ranks
  // must queue in the same order. Where it is not done in time (0: the communicator's), counted
  // from when what was queued before is, `what` says in the error what it was. While a step is
  // captured the work is recorded, and only the hosts have anything to do in time.
  std::shared_ptr<cuda::Event> queue(const std::string& what, std::chrono::milliseconds timeout,
                                     const std::function<Work()>& meet,
                                     const std::function<Stream()>& body);
  // Whether the capture under way has recorded something of this communicator.
  bool recorded() const;
  // In the body of queue(): the calls of NCCL that `calls` makes go on together, as one operation
  // of stream().
  void together(const std::function<void(ncclComm*)>& calls);
  // Throws CudaError for what a call of NCCL returned, an ncclResult_t, unless it went well or goes
  // on.
  void check(int result, const char* call) const;

  void throw_if_failed();
  // Tells the other ranks, and has the device's part in what is under way ended: the first failure
  // counts. noticed: it is another rank's.
  void give_up(const Failure& failure, bool noticed = false);

 private:
  struct UnderWay {
    std::string what;
    std::chrono::milliseconds timeout;
    std::chrono::steady_clock::time_point deadline;
    bool recorded;  // nothing happens on the device
    Work agreed = {};
    std::shared_ptr<cuda::Event> done = {};  // nullptr: still being issued
  };

  void connect();
  std::string reason() const;
  int state_of(ncclComm* comm);
  void settle(const char* call);
  void watch();
  std::optional<Failure> look();
  std::optional<Failure> failure_of_hosts() const;
  std::optional<Failure> blame() const;
  void end(ncclComm* comm, const std::deque<std::shared_ptr<UnderWay>>& under_way);

  const std::shared_ptr<ProcessGroup> host_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<cuda::OwnedStream> stream_;
  const int exceptions_at_birth_ = std::uncaught_exceptions();
  std::timed_mutex issue_mutex_;  // of calls of NCCL; before mutex_, under which it is only tried

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::atomic<ncclComm*> comm_ = nullptr;  // nullptr after a failure
  ncclComm* failed_comm_ = nullptr;        // that the thread is to end
  std::deque<std::shared_ptr<UnderWay>> pending_;
  std::optional<Failure> failure_;
  bool noticed_ = false;
  bool stop_ = false;
  LastResort last_resort_;
  std::thread watcher_;
  std::thread aborting_;
};

}  // namespace ringgrad
