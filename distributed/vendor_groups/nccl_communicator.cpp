#include "ringgrad/distributed/vendor_groups/nccl_communicator.h"

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

void LastResort::again() {
  std::lock_guard lock(mutex_);
  ++turn_;
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
    last_resort_.begin(failure_of(std::current_exception()).text, kTrainingFailed);
    if (comm_) ncclCommAbort(comm_);
    last_resort_.end();
    throw;
  }
  watcher_ = std::thread([this] { watch(); });
  asker_ = std::thread([this] { ask(); });
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
  if (!unwinding) idle_.wait(lock, [this] { return pending_.empty() || failure_; });
  const bool leaves_others_waiting = !pending_.empty();
  lock.unlock();
  if (leaves_others_waiting)
    give_up({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  lock.lock();
  stop_ = true;
  lock.unlock();
  changed_.notify_all();
  issued_.notify_all();
  asker_.join();
  // No graph holds it any more: neither abort nor destruction has anything to wait for.
  last_resort_.begin(failure_ ? failure_->text : "nccl: ncclCommDestroy does not return",
                     kTrainingFailed);
  watcher_.join();
  if (comm_) ncclCommDestroy(comm_);
  last_resort_.end();
}

Stream NcclCommunicator::stream() const { return stream_->get(); }

void NcclCommunicator::throw_if_failed() {
  std::lock_guard lock(mutex_);
  if (failure_) throw_failure(*failure_);
}

std::optional<Failure> NcclCommunicator::failure() {
  std::lock_guard lock(mutex_);
  return failure_ ? failure_ : host_->failure();
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
  if (under_way->recorded)
    under_way->passed = true;
  else
    under_way->done = done;
  issued_.notify_all();
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
    failed_comm_ = comm_.exchange(nullptr);
    last_resort_.begin(failure.text, noticed ? kRankDied : kTrainingFailed);
  }
  report_failure(failure, noticed);
  host_->abort(failure.text, failure.kind);
  changed_.notify_all();
  issued_.notify_all();
  idle_.notify_all();
}

// Calls nothing of CUDA, and before a failure only what NCCL answers without it.
void NcclCommunicator::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_ && !failure_) {
    std::optional<Failure> found;
    bool noticed = true;
    try {
      found = look();
    } catch (const std::exception&) {
      found = failure_of(std::current_exception());
      noticed = false;
    }
    if (pending_.empty()) idle_.notify_all();
    if (found) {
      lock.unlock();
      give_up(*found, noticed);
      lock.lock();
    } else if (pending_.empty()) {
      changed_.wait(lock, [this] { return stop_ || failure_ || !pending_.empty(); });
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
  ncclComm* const comm = failed_comm_;
  lock.unlock();
  if (!comm) return;
  // A thread that is issuing may use it: that is given a moment, unless it is stuck. The next ones
  // throw.
  if (issue_mutex_.try_lock_for(kMoment)) issue_mutex_.unlock();
  ncclCommAbort(comm);
}

// Asks the device how far it is. If the device itself fails, this throws, which ends the group like
// any other failure.
void NcclCommunicator::ask() {
  const cuda::DeviceGuard guard(device_);
  std::unique_lock lock(mutex_);
  const auto first = [this] {
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [](const auto& one) { return one->done && !one->passed; });
    return found == pending_.end() ? nullptr : *found;
  };
  while (issued_.wait(lock, [&] { return stop_ || failure_ || first(); }), !stop_ && !failure_) {
    const std::shared_ptr<UnderWay> one = first();
    lock.unlock();
    std::optional<Failure> found;
    bool passed = false;
    try {
      passed = one->done->done();
    } catch (const std::exception&) {
      found = failure_of(std::current_exception());
    }
    if (found) give_up(*found);
    lock.lock();
    one->passed = passed;
    if (passed) {
      auto ended = std::move(one->done);
      changed_.notify_all();
      lock.unlock();
      ended.reset();  // the last to hold an event calls CUDA, which watcher_ must not
      lock.lock();
    } else {
      issued_.wait_for(lock, kLook, [this] { return stop_ || failure_; });
    }
  }
  if (!failure_) return;
  const auto under_way = pending_;
  lock.unlock();
  see_the_end(under_way);
}

// Returns when no thread is issuing any more and the device's work has ended. Each of these waits
// has the last resort's time.
void NcclCommunicator::see_the_end(const std::deque<std::shared_ptr<UnderWay>>& under_way) {
  try {
    // Also waits for work without an event, of a call that failed half-way.
    cuda::Event last(device_);
    {
      std::lock_guard issued(issue_mutex_);
      if (!cuda::being_captured(stream())) last.record(stream());
    }
    for (const auto& one : under_way)
      for (last_resort_.again(); one->done && !one->done->done();)
        std::this_thread::sleep_for(kLook);
    for (last_resort_.again(); !last.done();) std::this_thread::sleep_for(kLook);
  } catch (const std::exception&) {  // a device that is lost has ended its work, too
  }
  last_resort_.end();
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
    if (!first.agreed.done() || !first.passed) break;
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
