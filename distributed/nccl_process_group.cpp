#include "distributed/nccl_process_group.h"

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "core/check.h"
#include "core/factory.h"
#include "cuda_kernels/runtime/device_guard.h"
#include "cuda_kernels/runtime/event.h"
#include "cuda_kernels/runtime/graph.h"
#include "cuda_kernels/runtime/stream.h"
#include "distributed/job_status.h"
#include "distributed/run_collective.h"

namespace ringgrad {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{5};      // how often the watching thread looks
constexpr std::chrono::milliseconds kMoment{200};  // for a call of NCCL that should return at once

ncclDataType_t nccl_type(Operation operation, DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return ncclFloat32;
    case DType::Float64:
      return ncclFloat64;
    case DType::Float16:
      return ncclFloat16;
    case DType::BFloat16:
      return ncclBfloat16;
    case DType::Int64:
      return ncclInt64;
    case DType::Int32:
      return ncclInt32;
    case DType::UInt8:
      return ncclUint8;
    default:
      throw_unsupported_dtype(name(operation), dtype, "a number");
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return ncclSum;
    case ReduceOp::Average:
      return ncclAvg;
    case ReduceOp::Min:
      return ncclMin;
    default:
      return ncclMax;
  }
}

std::string describe(const Collective& c) {
  const auto& [async, step, bucket, layout, about] = c.options;
  const Tensor& x = c.input.defined() ? c.input : c.output;
  return str(name(c.operation), " of ", x.numel(), " ", x.dtype(), step >= 0 ? str(", step ", step) : "",
             bucket >= 0 ? str(", bucket ", bucket) : "", about ? str(" (", *about, ")") : "");
}

}  // namespace

// The communicator, its stream, and the thread that looks after both.
class NcclProcessGroup::Communicator {
 public:
  Communicator(std::shared_ptr<ProcessGroup> host, Device device, std::chrono::milliseconds timeout)
      : host_(std::move(host)), device_(device), timeout_(timeout), stream_(device) {
    const cuda::DeviceGuard guard(device_);
    // Rank 0's name for the ranks reaches the others as a tensor of bytes.
    ncclUniqueId id{};
    if (host_->rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const Tensor bytes = empty({static_cast<int64_t>(sizeof id)}, {.dtype = DType::UInt8});
    std::memcpy(bytes.raw_data(), &id, sizeof id);
    host_->broadcast(bytes, 0).wait();
    std::memcpy(&id, bytes.raw_data(), sizeof id);

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    check(ncclCommInitRankConfig(&comm, host_->size(), id, host_->rank(), &config), "ncclCommInitRankConfig");
    comm_ = comm;
    try {
      settle("ncclCommInitRankConfig");
    } catch (...) {
      ncclCommAbort(comm);
      throw;
    }
    watcher_ = std::thread([this] { watch(); });
  }

  // Waits for what is under way: until its deadline, and not at all where an exception is the end.
  ~Communicator() {
    {
      std::unique_lock lock(mutex_);
      const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
      if (!unwinding) idle_.wait(lock, [this] { return pending_.empty(); });
      if (!pending_.empty()) give_up({FailureKind::Died, str("rank ", host_->rank(), " failed with an exception")});
      stop_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    if (comm_) ncclCommDestroy(comm_);
  }

  Stream stream() const { return stream_.get(); }

  void throw_if_failed() {
    std::lock_guard lock(mutex_);
    if (failure_) throw_failure(*failure_);
  }

  // Queues what `call` issues on the group's stream, after what the caller's holds; the event marks its end.
  template <class Call>
  std::shared_ptr<cuda::Event> queue(const Collective& c, Call&& call) {
    const cuda::DeviceGuard guard(device_);
    std::lock_guard issuing(issue_mutex_);  // all ranks issue in one order
    throw_if_failed();
    cuda::wait_for(stream(), current_stream(device_));
    const auto under_way = std::make_shared<UnderWay>(UnderWay{nullptr, Clock::now() + timeout_, describe(c)});
    if (!cuda::capturing()) {
      std::lock_guard lock(mutex_);
      pending_.push_back(under_way);
      changed_.notify_all();
    }
    auto done = std::make_shared<cuda::Event>(device_);
    try {
      const ncclComm_t comm = comm_;
      check(ncclGroupStart(), "ncclGroupStart");  // several calls go on together
      call(comm, cuda::native(stream()));
      check(ncclGroupEnd(), "ncclGroupEnd");
      settle("ncclGroupEnd");
      done->record(stream());
    } catch (...) {
      std::lock_guard lock(mutex_);
      std::erase(pending_, under_way);
      if (failure_) throw_failure(*failure_);  // of which this is the consequence
      throw;
    }
    std::lock_guard lock(mutex_);
    under_way->done = done;
    return done;
  }

  void check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw CudaError(str("nccl: ", call, " failed on rank ", host_->rank(), ": ", ncclGetErrorString(result), reason()));
  }

  void abort(const Failure& failure) {
    std::lock_guard lock(mutex_);
    give_up(failure);
  }

 private:
  struct UnderWay {
    std::shared_ptr<cuda::Event> done;  // nullptr: still being issued
    Clock::time_point deadline;
    std::string what;
    bool is_done() const { return done && done->done(); }
  };

  std::string reason() const {
    const ncclComm_t comm = comm_;
    const char* text = comm ? ncclGetLastError(comm) : nullptr;
    return text && *text ? str(" (", text, ")") : "";
  }

  // Non-blocking calls go on in the background: waits, with a deadline, until the last one has ended.
  void settle(const char* call) {
    const auto deadline = Clock::now() + timeout_;
    for (int round = 0;; ++round) {
      ncclResult_t state = ncclSuccess;
      const ncclComm_t comm = comm_;
      if (!comm) return throw_if_failed();
      check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
      if (state != ncclInProgress) return check(state, call);
      if (Clock::now() > deadline)
        throw TimeoutError(str("nccl: ", call, " has not connected the ", host_->size(), " ranks after ",
                               timeout_.count(), " ms on rank ", host_->rank(),
                               "; NCCL_DEBUG=INFO says what it waits for"));
      if (round > 100) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // The first cause counts. Ends the device's part in the collectives under way, and tells the other ranks.
  void give_up(const Failure& failure) {  // caller holds mutex_
    if (failure_) return;
    failure_ = failure;
    report_failure(failure, false);
    if (const ncclComm_t comm = comm_.exchange(nullptr)) {
      // A thread that is issuing may use the communicator: it is given a moment, unless it is stuck.
      std::unique_lock issuing(issue_mutex_, kMoment);
      ncclCommAbort(comm);
    }
    host_->abort(failure.text, failure.kind);
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      while (!pending_.empty() && pending_.front()->is_done()) pending_.pop_front();
      ncclResult_t state = ncclSuccess;
      if (!failure_ && ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state != ncclSuccess &&
          state != ncclInProgress)
        give_up({FailureKind::OutOfStep, str("nccl: ", ncclGetErrorString(state), reason(), " on rank ", host_->rank(),
                                             pending_.empty() ? "" : " in " + pending_.front()->what)});
      if (!failure_ && !pending_.empty() && Clock::now() > pending_.front()->deadline)
        give_up({FailureKind::TimedOut, str(pending_.front()->what, ": not done after ", timeout_.count(),
                                            " ms on rank ", host_->rank(), "; another rank is missing or stuck")});
      if (failure_) pending_.clear();
      if (pending_.empty()) idle_.notify_all();
      if (pending_.empty())
        changed_.wait(lock, [this] { return stop_ || !pending_.empty(); });
      else
        changed_.wait_for(lock, kLook);
    }
  }

  const std::shared_ptr<ProcessGroup> host_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  const cuda::OwnedStream stream_;
  const int exceptions_at_birth_ = std::uncaught_exceptions();
  std::timed_mutex issue_mutex_;  // before mutex_

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_, idle_;
  std::atomic<ncclComm_t> comm_ = nullptr;  // nullptr after a failure
  std::deque<std::shared_ptr<UnderWay>> pending_;
  std::optional<Failure> failure_;
  bool stop_ = false;
  std::thread watcher_;
};

// A collective under way. It keeps the tensors until the stream that waits for it may let them go.
class NcclProcessGroup::Pending final : public Work::State {
 public:
  Pending(std::shared_ptr<Communicator> communicator, std::shared_ptr<cuda::Event> done, Collective collective,
          Device device)
      : communicator_(std::move(communicator)),
        done_(std::move(done)),
        collective_(std::move(collective)),
        device_(device) {}
  ~Pending() override {
    if (!waited_) done_->block(current_stream(device_));
  }

  void wait() override {
    communicator_->throw_if_failed();
    done_->block(current_stream(device_));
    waited_ = true;
  }
  bool done() const override { return done_->done(); }
  WorkTimes times() const override { return {}; }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<cuda::Event> done_;
  Collective collective_;
  Device device_;
  bool waited_ = false;
};

NcclProcessGroup::NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device, std::chrono::milliseconds timeout)
    : ProcessGroup(host->rank(), host->size()), host_(std::move(host)), device_(device), timeout_(timeout) {
  CHECK_AS(DeviceError, device.is_cuda(), "nccl: the rank's device is ", device, ", expected a CUDA device");
  communicator_ = std::make_shared<Communicator>(host_, device_, timeout_);
}

NcclProcessGroup::~NcclProcessGroup() = default;

std::string NcclProcessGroup::backend() const { return "nccl, and " + host_->backend(); }

bool NcclProcessGroup::reaches(Device device) const { return device == device_ || host_->reaches(device); }

std::shared_ptr<Storage> NcclProcessGroup::allocate_shared(size_t bytes, Device device) {
  return device == device_ ? std::make_shared<Storage>(bytes, device_) : host_->allocate_shared(bytes, device);
}

std::shared_ptr<ProcessGroup> NcclProcessGroup::split(int color, int key) {
  auto part = host_->split(color, key);
  return part ? std::make_shared<NcclProcessGroup>(std::move(part), device_, timeout_) : nullptr;
}

void NcclProcessGroup::abort(const std::string& reason, FailureKind kind) { communicator_->abort({kind, reason}); }

Work NcclProcessGroup::issue(Collective c) {
  for (const Tensor* x : {&c.input, &c.output})
    CHECK_AS(DeviceError, !x->defined() || reaches(x->device()), name(c.operation), ": a tensor lies on ", x->device(),
             ", expected ", device_, ", the rank's device, or the CPU");
  const bool on_device =
      (c.input.defined() && c.input.device().is_cuda()) || (c.output.defined() && c.output.device().is_cuda());
  if (!on_device) return issue_on_host(c);

  const Tensor& part = c.operation == Operation::ReduceScatter || !c.input.defined() ? c.output : c.input;
  const ncclDataType_t type = nccl_type(c.operation, part.dtype());
  const size_t count = c.operation == Operation::Scatter ? items_in(c.output) : items_in(part);
  void* const in = c.input.defined() ? c.input.raw_data() : nullptr;
  void* const out = c.output.defined() ? c.output.raw_data() : nullptr;
  const size_t bytes = count * itemsize(part.dtype());
  const auto piece = [bytes](void* whole, int r) { return static_cast<char*>(whole) + static_cast<size_t>(r) * bytes; };
  const auto run = [&](ncclComm_t comm, cudaStream_t stream) {
    const auto check = [this](ncclResult_t result, const char* call) { communicator_->check(result, call); };
    switch (c.operation) {
      case Operation::AllReduce:
        return check(ncclAllReduce(in, out, count, type, nccl_op(c.reduce_op), comm, stream), "ncclAllReduce");
      case Operation::Broadcast:
        return check(ncclBroadcast(in, out, count, type, c.root, comm, stream), "ncclBroadcast");
      case Operation::Reduce:
        return check(ncclReduce(in, out, count, type, nccl_op(c.reduce_op), c.root, comm, stream), "ncclReduce");
      case Operation::AllGather:
        return check(ncclAllGather(in, out, count, type, comm, stream), "ncclAllGather");
      case Operation::ReduceScatter:
        return check(ncclReduceScatter(in, out, count, type, nccl_op(c.reduce_op), comm, stream), "ncclReduceScatter");
      case Operation::Gather:
        check(ncclSend(in, count, type, c.root, comm, stream), "ncclSend");
        for (int r = 0; r < size() && rank() == c.root; ++r)
          check(ncclRecv(piece(out, r), count, type, r, comm, stream), "ncclRecv");
        return;
      case Operation::Scatter:
        for (int r = 0; r < size() && rank() == c.root; ++r)
          check(ncclSend(piece(in, r), count, type, r, comm, stream), "ncclSend");
        return check(ncclRecv(out, count, type, c.root, comm, stream), "ncclRecv");
      default:
        if (in) return check(ncclSend(in, count, type, c.root, comm, stream), "ncclSend");
        return check(ncclRecv(out, count, type, c.root, comm, stream), "ncclRecv");
    }
  };
  auto done = communicator_->queue(c, run);
  const bool async = c.options.async;
  Work work(std::make_shared<Pending>(communicator_, std::move(done), std::move(c), device_));
  if (!async) work.wait();
  return work;
}

Work NcclProcessGroup::issue_on_host(const Collective& c) {
  communicator_->throw_if_failed();
  switch (c.operation) {
    case Operation::AllReduce:
      return host_->all_reduce(c.output, c.reduce_op, c.options);
    case Operation::Broadcast:
      return host_->broadcast(c.output, c.root, c.options);
    case Operation::Reduce:
      return host_->reduce(c.input, c.root, c.reduce_op, c.options);
    case Operation::Gather:
      return host_->gather(c.output, c.input, c.root, c.options);
    case Operation::Scatter:
      return host_->scatter(c.output, c.input, c.root, c.options);
    case Operation::AllGather:
      return host_->all_gather(c.output, c.input, c.options);
    case Operation::ReduceScatter:
      return host_->reduce_scatter(c.output, c.input, c.reduce_op, c.options);
    case Operation::SendRecv:
      return c.input.defined() ? host_->send(c.input, c.root, c.options) : host_->recv(c.output, c.root, c.options);
    default: {
      // A barrier holds for the devices, too: each rank's has done what was queued before.
      synchronize(current_stream(device_));
      return host_->barrier(c.options);
    }
  }
}

}  // namespace ringgrad
