#include "ringgrad/distributed/vendor_groups/nccl_communicator.h"

#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{5};      // how often the watching thread looks
constexpr std::chrono::milliseconds kMoment{200};  // for a call of NCCL that should return at once

bool is_cuda_error(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const CudaError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

// ---- the last resort ----------------------------------------------------------------------------

LastResort::LastResort(std::chrono::milliseconds limit)
    : limit_(limit), thread_([this] { look_on(); }) {}

LastResort::~LastResort() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void LastResort::begin(std::string words, ExitCode code) {
  std::lock_guard lock(mutex_);
  ++turn_;
  words_ = std::move(words);
  code_ = code;
}

void LastResort::end() {
  std::lock_guard lock(mutex_);
  words_.clear();
}

// It counts its own looks at the clock, because a process that was stopped for an hour has not
// waited for an hour.
void LastResort::look_on() {
  constexpr int kLooks = 20;
  std::unique_lock lock(mutex_);
  int64_t seen = 0;
  const auto pause = std::max(limit_ / kLooks, std::chrono::milliseconds(1));
  for (int looks = 0; !stopped_.wait_for(lock, pause, [this] { return stop_; });) {
    looks = turn_ == seen && !words_.empty() ? looks + 1 : 0;
    seen = turn_;
    if (looks < kLooks) continue;
    std::fprintf(
        stderr,
        "ringgrad: %s; and the device has not ended its work %lld ms later: this process ends\n",
        words_.c_str(), static_cast<long long>(limit_.count()));
    std::_Exit(code_);
  }
}

// ---- the communicator ---------------------------------------------------------------------------

NcclCommunicator::NcclCommunicator(std::shared_ptr<ProcessGroup> host, Device device,
                                   std::chrono::milliseconds timeout,
                                   std::chrono::milliseconds last_resort)
    : host_(std::move(host)),
      device_(device),
      timeout_(timeout),
      stream_(std::make_unique<cuda::OwnedStream>(device)),
      last_resort_(last_resort) {
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
  if (leaves_others_waiting)
    give_up({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  lock.lock();
  stop_ = true;
  lock.unlock();
  changed_.notify_all();
  watcher_.join();
  // No graph holds it any more: neither has anything to wait for.
  last_resort_.begin(failure_ ? failure_->text : "nccl: ncclCommDestroy does not return",
                     kTrainingFailed);
  if (aborting_.joinable()) aborting_.join();
  if (comm_) ncclCommDestroy(comm_);
  last_resort_.end();
}

Stream NcclCommunicator::stream() const { return stream_->get(); }

void NcclCommunicator::throw_if_failed() {
  std::lock_guard lock(mutex_);
  if (failure_) throw_failure(*failure_);
}

bool NcclCommunicator::recorded() const { return cuda::being_captured(stream()); }

std::shared_ptr<cuda::Event> NcclCommunicator::queue(const std::string& what,
                                                     std::chrono::milliseconds timeout,
                                                     const std::function<Work()>& meet,
                                                     const std::function<Stream()>& body) {
  if (timeout.count() == 0) timeout = timeout_;
  const cuda::DeviceGuard guard(device_);
  std::unique_lock issuing(issue_mutex_);  // all ranks issue in one order
  throw_if_failed();
  const auto done = std::make_shared<cuda::Event>(device_);
  cuda::wait_for(stream(), current_stream(device_));
  const auto under_way = std::make_shared<UnderWay>(
      UnderWay{what, timeout, Clock::now() + timeout, cuda::capturing()});
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(under_way);
  }
  changed_.notify_all();
  try {
    const Work agreed = meet();
    {
      std::lock_guard lock(mutex_);
      // A thread that looks on may know better while this one is held up.
      under_way->agreed = agreed;
    }
    done->record(body());
  } catch (...) {
    issuing.unlock();
    std::optional<Failure> missed;
    {
      std::lock_guard lock(mutex_);
      if (!failure_ && is_cuda_error(std::current_exception())) missed = blame();
      std::erase(pending_, under_way);
    }
    throw_if_failed();  // if this call failed because the group did
    // Otherwise the other ranks would wait for work that was not queued.
    give_up(missed ? *missed : failure_of(std::current_exception()), missed.has_value());
    if (missed) throw_if_failed();
    throw;
  }
  std::lock_guard lock(mutex_);
  under_way->done = done;
  return done;
}

// A communicator that is not blocking may still be at work when the last call returns; what is
// queued on the stream meanwhile could overtake it.
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

// Returns the state of the last call. NCCL allows neither two threads that ask at once, nor one
// that asks while another one issues.
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
      throw TimeoutError(str("nccl: ", call, " has not connected the ", size(), " ranks after ",
                             timeout_.count(), " ms on rank ", rank(),
                             "; NCCL_DEBUG=INFO says what it waits for"));
    if (round > 100)
      std::this_thread::sleep_for(std::chrono::microseconds(round < 2000 ? 10 : 1000));
  }
}

void NcclCommunicator::give_up(const Failure& failure, bool noticed) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    noticed_ = noticed;
    failed_comm_ = comm_.exchange(nullptr);
  }
  report_failure(failure, noticed);
  host_->abort(failure.text, failure.kind);
  changed_.notify_all();
}

// If the device itself fails, asking it throws, which ends the group like any other failure.
void NcclCommunicator::watch() {
  const cuda::DeviceGuard guard(device_);
  std::unique_lock lock(mutex_);
  while (!stop_ || failed_comm_) {
    std::optional<Failure> found;
    bool noticed = true;
    last_resort_.begin(str(pending_.empty() ? "nccl" : pending_.front()->what,
                           ": CUDA does not say whether it is done"),
                       kTrainingFailed);
    try {
      if (!failure_) found = look();
    } catch (const std::exception&) {
      found = failure_of(std::current_exception());
      noticed = false;
    }
    last_resort_.end();
    if (found) {
      lock.unlock();
      give_up(*found, noticed);
      lock.lock();
    }
    if (const ncclComm_t comm = std::exchange(failed_comm_, nullptr)) {
      const auto under_way = pending_;
      lock.unlock();
      end(comm, under_way);
      lock.lock();
      last_resort_.end();
    }
    if (failure_) pending_.clear();
    if (pending_.empty()) idle_.notify_all();
    if (pending_.empty())
      changed_.wait(lock, [this] { return stop_ || failed_comm_ || !pending_.empty(); });
    else
      changed_.wait_for(lock, kLook);
  }
}

// Returns when no thread is issuing any more and the device's work has ended. Each of the two waits
// has the last resort's time.
void NcclCommunicator::end(ncclComm* comm, const std::deque<std::shared_ptr<UnderWay>>& under_way) {
  // A thread that is issuing may use it: that is given a moment, unless it is stuck. The next ones
  // throw.
  const auto begin = [this] {
    last_resort_.begin(failure_->text, noticed_ ? kRankDied : kTrainingFailed);
  };
  begin();
  if (issue_mutex_.try_lock_for(kMoment)) issue_mutex_.unlock();
  try {
    aborting_ = std::thread([comm] { ncclCommAbort(comm); });
  } catch (const std::system_error&) {  // no more threads
    ncclCommAbort(comm);
  }
  try {
    // Also waits for work without an event, of a call that failed half-way.
    cuda::Event last(device_);
    {
      std::lock_guard issued(issue_mutex_);
      if (!cuda::being_captured(stream())) last.record(stream());
    }
    for (const auto& one : under_way)
      for (begin(); one->done && !one->recorded && !one->done->done();)
        std::this_thread::sleep_for(kLook);
    for (begin(); !last.done();) std::this_thread::sleep_for(kLook);
  } catch (const std::exception&) {  // a device that is lost has ended its work, too
  }
}

// A rank that is missed in a later meeting, or while the hosts do not meet, is missing in the first
// one's transfer, too.
std::optional<Failure> NcclCommunicator::failure_of_hosts() const {  // caller holds mutex_
  try {
    for (const auto& one : pending_)
      if (one->agreed.done()) one->agreed.wait();
  } catch (...) {
    return failure_of(std::current_exception());
  }
  std::optional<Failure> known = host_->failure();
  if (known && !pending_.empty() && known->text.find(pending_.front()->what) == std::string::npos)
    known->text = str(pending_.front()->what, ": ", known->text);
  return known;
}

// An error of NCCL is a consequence. The hosts get a moment to name the cause.
std::optional<Failure> NcclCommunicator::blame() const {  // caller holds mutex_
  for (const auto end = Clock::now() + kMoment; Clock::now() < end;
       std::this_thread::sleep_for(kLook))
    if (auto missed = failure_of_hosts()) return missed;
  return {};
}

// Returns the failure that it finds, if any. The caller holds mutex_, and there is no failure yet.
std::optional<Failure> NcclCommunicator::look() {
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
  if (state != ncclSuccess && state != ncclInProgress) {
    if (auto missed = blame()) return missed;
    return Failure{
        FailureKind::OutOfStep,
        str("nccl: ", ncclGetErrorString(static_cast<ncclResult_t>(state)), reason(), " on rank ",
            rank(), pending_.empty() ? "" : " in " + pending_.front()->what)};
  }
  // The hosts have the same deadline, and then know which rank is missing.
  if (!pending_.empty() && Clock::now() > pending_.front()->deadline +
                                              (pending_.front()->agreed.done() ? 0 : 5) * kMoment)
    return Failure{FailureKind::TimedOut, str(pending_.front()->what, ": not done after ",
                                              pending_.front()->timeout.count(), " ms on rank ",
                                              rank(), "; another rank is missing or stuck")};
  return {};
}

}  // namespace ringgrad
