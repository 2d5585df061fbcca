#include "ringgrad/distributed/process_groups/nccl_communicator.h"

#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{5};      // how often the watching thread looks
constexpr std::chrono::milliseconds kMoment{200};  // for a call of NCCL that should return at once

// Ends the process where it lives too long. Asks nothing of CUDA, whose calls may be what does not return.
class LastResort {
 public:
  LastResort(std::chrono::milliseconds limit, std::string last_words)
      : waiting_([this, limit, words = std::move(last_words)] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
          std::fprintf(stderr, "ringgrad: %s; and the device has not ended its work %lld ms later: this process ends\n",
                       words.c_str(), static_cast<long long>(limit.count()));
          std::_Exit(EXIT_FAILURE);
        }) {}
  ~LastResort() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    waiting_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread waiting_;
};

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<ProcessGroup> host, Device device, std::chrono::milliseconds timeout,
                                   std::chrono::milliseconds last_resort)
    : host_(std::move(host)),
      device_(device),
      timeout_(timeout),
      last_resort_(last_resort),
      stream_(std::make_unique<cuda::OwnedStream>(device)) {
  const cuda::DeviceGuard guard(device_);
  try {
    connect();
  } catch (...) {
    if (comm_) ncclCommAbort(comm_);
    throw;
  }
  watcher_ = std::thread([this] { watch(); });
}

void NcclCommunicator::connect() {
  ncclUniqueId id{};
  if (rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Tensor bytes = empty({static_cast<int64_t>(sizeof id)}, {.dtype = DType::UInt8});
  std::memcpy(bytes.raw_data(), &id, sizeof id);
  host_->broadcast(bytes, 0).wait();
  std::memcpy(&id, bytes.raw_data(), sizeof id);

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check(ncclCommInitRankConfig(&comm, size(), id, rank(), &config), "ncclCommInitRankConfig");
  comm_ = comm;
  settle("ncclCommInitRankConfig");
}

NcclCommunicator::~NcclCommunicator() {
  std::unique_lock lock(mutex_);
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
  if (!unwinding) idle_.wait(lock, [this] { return pending_.empty(); });
  const bool leaves_others_waiting = !pending_.empty();
  lock.unlock();
  if (leaves_others_waiting) give_up({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  lock.lock();
  stop_ = true;
  lock.unlock();
  changed_.notify_all();
  watcher_.join();
  if (aborting_.joinable()) aborting_.join();
  if (comm_) ncclCommDestroy(comm_);
}

Stream NcclCommunicator::stream() const { return stream_->get(); }

void NcclCommunicator::throw_if_failed() {
  std::lock_guard lock(mutex_);
  if (failure_) throw_failure(*failure_);
}

bool NcclCommunicator::recorded() const { return cuda::being_captured(stream()); }

std::shared_ptr<cuda::Event> NcclCommunicator::queue(const std::string& what, std::chrono::milliseconds timeout,
                                                     const std::function<Work()>& meet,
                                                     const std::function<Stream()>& body) {
  if (timeout.count() == 0) timeout = timeout_;
  const cuda::DeviceGuard guard(device_);
  std::unique_lock issuing(issue_mutex_);  // all ranks issue in one order
  throw_if_failed();
  const auto done = std::make_shared<cuda::Event>(device_);
  cuda::wait_for(stream(), current_stream(device_));
  const auto under_way = std::make_shared<UnderWay>(UnderWay{what, timeout, Clock::now() + timeout, cuda::capturing()});
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(under_way);
  }
  changed_.notify_all();
  try {
    const Work agreed = meet();
    {
      std::lock_guard lock(mutex_);
      under_way->agreed = agreed;  // a thread that looks on may know better while this one is held up
    }
    done->record(body());
  } catch (...) {
    issuing.unlock();
    {
      std::lock_guard lock(mutex_);
      std::erase(pending_, under_way);
    }
    throw_if_failed();                              // of which this is the consequence
    give_up(failure_of(std::current_exception()));  // the other ranks would wait for what has not been queued
    throw;
  }
  std::lock_guard lock(mutex_);
  under_way->done = done;
  return done;
}

// A communicator that is not blocking may still be at work when the last call returns; what is queued on the stream
// meanwhile could overtake it.
void NcclCommunicator::together(const std::function<void(ncclComm*)>& calls) {
  const ncclComm_t comm = comm_;
  if (!comm) return throw_if_failed();
  check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls(comm);
  } catch (...) {
    ncclGroupEnd();  // or this thread's later calls would join the group
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  settle("ncclGroupEnd");
}

void NcclCommunicator::check(int result, const char* call) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw CudaError(str("nccl: ", call, " failed on rank ", rank(), ": ",
                      ncclGetErrorString(static_cast<ncclResult_t>(result)), reason()));
}

std::string NcclCommunicator::reason() const {
  const ncclComm_t comm = comm_;
  const char* text = comm ? ncclGetLastError(comm) : nullptr;
  return text && *text ? str(" (", text, ")") : "";
}

// How the last call goes. NCCL allows neither two threads that ask, nor one that asks while another issues.
int NcclCommunicator::state_of(ncclComm* comm) {  // caller holds issue_mutex_, or is alone
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
  return state;
}

// Non-blocking calls go on in the background: waits, with a deadline, until the last one has ended.
void NcclCommunicator::settle(const char* call) {
  const auto deadline = Clock::now() + timeout_;
  for (int round = 0;; ++round) {
    const ncclComm_t comm = comm_;
    if (!comm) return throw_if_failed();
    const int state = state_of(comm);
    if (state != ncclInProgress) return check(state, call);
    if (Clock::now() > deadline)
      throw TimeoutError(str("nccl: ", call, " has not connected the ", size(), " ranks after ", timeout_.count(),
                             " ms on rank ", rank(), "; NCCL_DEBUG=INFO says what it waits for"));
    if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(round < 2000 ? 10 : 1000));
  }
}

void NcclCommunicator::give_up(const Failure& failure) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_comm_ = comm_.exchange(nullptr);
  }
  report_failure(failure, false);
  host_->abort(failure.text, failure.kind);
  changed_.notify_all();
}

// Where the device itself fails, asking it throws: that ends the group like any other failure.
void NcclCommunicator::watch() {
  const cuda::DeviceGuard guard(device_);
  std::unique_lock lock(mutex_);
  while (!stop_ || failed_comm_) {
    std::optional<Failure> found;
    try {
      if (!failure_) found = look();
    } catch (const std::exception&) {
      found = failure_of(std::current_exception());
    }
    if (found) {
      lock.unlock();
      give_up(*found);
      lock.lock();
    }
    if (const ncclComm_t comm = std::exchange(failed_comm_, nullptr)) {
      const LastResort resort(last_resort_, failure_->text);
      const auto under_way = pending_;
      lock.unlock();
      end(comm, under_way);
      lock.lock();
    }
    if (failure_) pending_.clear();
    if (pending_.empty()) idle_.notify_all();
    if (pending_.empty())
      changed_.wait(lock, [this] { return stop_ || failed_comm_ || !pending_.empty(); });
    else
      changed_.wait_for(lock, kLook);
  }
}

// Returns when nobody is issuing any more, and the device's work has ended.
void NcclCommunicator::end(ncclComm* comm, const std::deque<std::shared_ptr<UnderWay>>& under_way) {
  // A thread that is issuing may use it: that is given a moment, unless it is stuck. The next ones throw.
  if (issue_mutex_.try_lock_for(kMoment)) issue_mutex_.unlock();
  aborting_ = std::thread([comm, device = device_] {
    const cuda::DeviceGuard guard(device);
    ncclCommAbort(comm);
  });
  { std::lock_guard issued(issue_mutex_); }
  const auto ended = [](const auto& one) {
    try {
      return !one->done || one->recorded || one->done->done();
    } catch (const CudaError&) {  // so has a device that is lost
      return true;
    }
  };
  while (!std::all_of(under_way.begin(), under_way.end(), ended)) std::this_thread::sleep_for(kLook);
}

// A rank that is missed in a later meeting, or while the hosts do not meet, is missing in the first one's transfer,
// too.
std::optional<Failure> NcclCommunicator::failure_of_hosts() const {  // caller holds mutex_
  try {
    for (const auto& one : pending_)
      if (one->agreed.done()) one->agreed.wait();
  } catch (...) {
    return failure_of(std::current_exception());
  }
  std::optional<Failure> known = host_->failure();
  if (known && !pending_.empty()) known->text = str(pending_.front()->what, ": ", known->text);
  return known;
}

// What has gone wrong, if anything.
std::optional<Failure> NcclCommunicator::look() {  // caller holds mutex_, and there is no failure yet
  while (!pending_.empty()) {
    if (auto missed = failure_of_hosts()) return missed;
    const UnderWay& first = *pending_.front();
    if (!first.agreed.done()) break;
    if (!first.done || (!first.recorded && !first.done->done())) break;
    pending_.pop_front();
    // The host may be many replays ahead of the device.
    if (!pending_.empty()) pending_.front()->deadline = Clock::now() + pending_.front()->timeout;
  }
  int state = ncclSuccess;
  if (std::unique_lock idle(issue_mutex_, std::try_to_lock); idle) state = state_of(comm_);
  if (state != ncclSuccess && state != ncclInProgress) {  // the hosts may know whose fault it is
    for (const auto end = Clock::now() + kMoment; Clock::now() < end; std::this_thread::sleep_for(kLook))
      if (auto missed = failure_of_hosts()) return missed;
    return Failure{FailureKind::OutOfStep,
                   str("nccl: ", ncclGetErrorString(static_cast<ncclResult_t>(state)), reason(), " on rank ", rank(),
                       pending_.empty() ? "" : " in " + pending_.front()->what)};
  }
  // The hosts have the same deadline, and then know who is missing.
  if (!pending_.empty() &&
      Clock::now() > pending_.front()->deadline + (pending_.front()->agreed.done() ? 0 : 5) * kMoment)
    return Failure{FailureKind::TimedOut,
                   str(pending_.front()->what, ": not done after ", pending_.front()->timeout.count(), " ms on rank ",
                       rank(), "; another rank is missing or stuck")};
  return {};
}

}  // namespace ringgrad
