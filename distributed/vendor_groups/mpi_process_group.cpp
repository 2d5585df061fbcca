// MpiProcessGroup: the group of ranks that mpirun or srun has started, over the site's MPI library.
// It uses non-blocking collectives of MPI-3, on CPU tensors. It is a module of its own, so that
// nothing else links MPI (backend.h).
//
// MPI cannot name a rank that is missing (a TimeoutError only names the collective), compare what
// the ranks are doing, or go on after an error. So abort() ends all processes of the job, as MPI's
// own errors do, and so does a rank that leaves after an error.

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/distributed/vendor_groups/backend.h"

namespace ringgrad {
namespace {

// MPI moves bytes only during its own calls.
constexpr std::chrono::microseconds kBetweenLooks{20};

// MPI is initialised for one calling thread at a time (MPI_THREAD_SERIALIZED), over all groups.
std::mutex mpi_mutex;

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DistributedError(str("mpi: ", what, ": ", text));
}

MPI_Datatype arithmetic_type(DType dtype) {
  switch (dtype) {
    case DType::Float64: return MPI_DOUBLE;
    case DType::Int64: return MPI_INT64_T;
    case DType::Int32: return MPI_INT32_T;
    case DType::UInt8:
    case DType::Bool: return MPI_UINT8_T;
    default: return MPI_FLOAT;  // 16-bit floats are summed in float32
  }
}

MPI_Datatype bits_type(DType dtype) {  // for bytes that only travel
  switch (itemsize(dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    default: return MPI_UINT64_T;
  }
}

MPI_Op operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Min: return MPI_MIN;
    case ReduceOp::Max: return MPI_MAX;
    case ReduceOp::Product: return MPI_PROD;
    case ReduceOp::BitAnd: return MPI_BAND;
    case ReduceOp::BitOr: return MPI_BOR;
    case ReduceOp::BitXor: return MPI_BXOR;
    default: return MPI_SUM;
  }
}

std::vector<float> widened(const Tensor& x) {
  std::vector<float> wide(static_cast<size_t>(x.numel()));
  visit_floating("mpi", x.dtype(), [&]<class T>() {
    const T* items = static_cast<const T*>(x.raw_data());
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(items[i]);
  });
  return wide;
}

void* data_of(const Tensor& x) { return x.defined() && x.numel() > 0 ? x.raw_data() : nullptr; }

struct QueuedCollective final : PendingWork {
  explicit QueuedCollective(Collective c) : collective(std::move(c)), frame(frame_of(collective)) {}

  void end(std::exception_ptr error) {
    if (!error) {  // lets the tensors go
      collective = {};
      wide_in = wide_out = {};
    }
    PendingWork::end(error);
  }

  Collective collective;
  Frame frame;
  int source() const override { return sender; }

  MPI_Request request = MPI_REQUEST_NULL;
  int sender = -1;  // the sender of the message that a receive got
  // of 16-bit elements
  std::vector<float> wide_in;
  std::vector<float> wide_out;
  std::vector<std::byte> sum;  // of this rank's slice
  std::vector<int> in_counts;
  std::vector<int> in_begins;
  std::vector<int> out_counts;
  std::vector<int> out_begins;
  std::chrono::milliseconds timeout{};
  Deadline deadline;
};

// Fills in the arguments of MPI's vector collectives: the number of elements for each rank, and the
// first one's index.
void lay_out(const std::vector<int64_t>& elements, std::vector<int>& counts,
             std::vector<int>& begins) {
  int at = 0;
  for (const int64_t n : elements) {
    counts.push_back(static_cast<int>(n));
    begins.push_back(at);
    at += static_cast<int>(n);
  }
}

// The jobs that have failed. MPI may still read and write their tensors, so they are kept for ever.
// Guarded by mpi_mutex.
std::vector<std::shared_ptr<QueuedCollective>>& failed_jobs =
    *new std::vector<std::shared_ptr<QueuedCollective>>();

int ask(int (*query)(MPI_Comm, int*), MPI_Comm comm) {
  int answer = 0;
  query(comm, &answer);
  return answer;
}

class MpiProcessGroup final : public ProcessGroup {
 public:
  MpiProcessGroup(MPI_Comm comm, std::chrono::milliseconds timeout)
      : ProcessGroup(ask(MPI_Comm_rank, comm), ask(MPI_Comm_size, comm)),
        comm_(comm),
        timeout_(timeout),
        exceptions_at_birth_(std::uncaught_exceptions()) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    worker_ = std::thread([this] { serve(); });
  }

  ~MpiProcessGroup() override {
    {
      std::lock_guard lock(jobs_mutex_);
      stop_ = true;
    }
    wakeup_.notify_all();
    worker_.join();
    // MPI_Finalize waits for all ranks. After an exception the others would wait for this one for
    // ever.
    if (std::uncaught_exceptions() > exceptions_at_birth_ || !jobs_.empty())
      abort("a rank left with an exception", FailureKind::Died);
    std::lock_guard lock(mpi_mutex);
    if (!failed_jobs.empty()) abort("a rank left after a collective had failed", FailureKind::Died);
    if (comm_ == MPI_COMM_WORLD)
      MPI_Finalize();
    else
      MPI_Comm_free(&comm_);
  }

  std::string backend() const override { return "mpi"; }

  std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device) override {
    CHECK_AS(DeviceError, device.is_cpu(), "allocate_shared: on ", device,
             ", but this is a group of CPU ranks");
    return std::make_shared<Storage>(bytes, Device());
  }

  std::shared_ptr<ProcessGroup> split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    barrier().wait();  // it has a deadline, which MPI_Comm_split lacks
    {
      std::lock_guard lock(mpi_mutex);
      check_mpi(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &part), "split");
    }
    return part == MPI_COMM_NULL
               ? nullptr
               : of_this_process(std::make_shared<MpiProcessGroup>(part, timeout_));
  }

  void abort(const std::string& reason, FailureKind kind) override {
    report_failure({kind, reason}, /*noticed=*/false);
    // The process ends now, so no later code can print it.
    std::cerr << str("[rank ", rank(), "] ", reason, '\n') << std::flush;
    MPI_Abort(MPI_COMM_WORLD, 5);
  }

 private:
  Work issue(Collective collective) override {
    const bool async = collective.options.async;
    const bool point_to_point = collective.operation == Operation::SendRecv;
    auto job = std::make_shared<QueuedCollective>(std::move(collective));
    const Collective& c = job->collective;
    const bool by_counts = !c.output_counts.empty();
    CHECK(job->frame.count <= INT_MAX &&
              (!by_counts || std::max(c.input.numel(), c.output.numel()) <= INT_MAX),
          describe(job->collective), ": MPI counts to ", INT_MAX, "; split the tensor");
    if (job->frame.step >= 0) set_step(job->frame.step);
    if (job->frame.bucket >= 0) own_status().bucket = job->frame.bucket + 1;
    job->timeout = c.options.timeout.count() > 0 ? c.options.timeout : timeout_;
    job->deadline = Deadline::after(job->timeout);
    {
      std::lock_guard lock(mpi_mutex);
      start(*job);
    }
    if (async) {
      {
        std::lock_guard lock(jobs_mutex_);
        jobs_.push_back(job);
      }
      wakeup_.notify_all();
      return Work(std::move(job));
    }
    while (!advance(job)) std::this_thread::yield();
    job->wait();
    return point_to_point ? Work(std::move(job)) : Work();
  }

  void serve() {
    std::unique_lock lock(jobs_mutex_);
    while (!stop_) {
      std::erase_if(jobs_, [&](const auto& job) { return advance(job); });
      if (jobs_.empty())
        wakeup_.wait(lock);
      else
        wakeup_.wait_for(lock, kBetweenLooks);
    }
  }

  // Moves the job on. Returns true if it is done, well or badly.
  bool advance(const std::shared_ptr<QueuedCollective>& shared) {
    QueuedCollective& job = *shared;
    try {
      int done = 0;
      int code;
      int items = 0;
      MPI_Status status;
      {
        std::lock_guard lock(mpi_mutex);
        code = MPI_Test(&job.request, &done, &status);
        if (code == MPI_SUCCESS && done && receives(job))
          MPI_Get_count(&status, bits_type(job.frame.dtype), &items);
      }
      // Words only when they are needed.
      if (code != MPI_SUCCESS) check_mpi(code, describe(job.collective).c_str());
      CHECK_AS(TimeoutError, done || !job.deadline.passed(), describe(job.collective),
               ": not done after ", std::chrono::duration<double>(job.timeout).count(),
               " s; MPI does not tell who is missing");
      if (!done) return false;
      if (receives(job)) {
        job.sender = status.MPI_SOURCE;
        CHECK_AS(OutOfStepError, static_cast<uint64_t>(items) == job.frame.count,
                 describe(job.collective), ": rank ", job.sender, " sent ", items, " elements");
      }
      finish(job);
      job.end(nullptr);
    } catch (...) {
      report_failure(failure_of(std::current_exception()), /*noticed=*/true);
      {
        std::lock_guard lock(mpi_mutex);
        failed_jobs.push_back(shared);
      }
      job.end(std::current_exception());
    }
    return true;
  }

  std::vector<int64_t> slices_of(const Collective& c) const {
    std::vector<int64_t> counts;
    const Range all{0, static_cast<size_t>(c.output.numel())};
    for (int r = 0; r < size(); ++r)
      counts.push_back(static_cast<int64_t>(chunk_of(all, size(), r).count()));
    return counts;
  }

  static bool receives(const QueuedCollective& job) {
    return job.collective.operation == Operation::SendRecv && job.collective.output.defined();
  }

  void start(QueuedCollective& job) {
    const Collective& c = job.collective;
    const auto n = static_cast<int>(job.frame.count);
    const DType dtype = job.frame.dtype;
    void* in = data_of(c.input);
    void* out = data_of(c.output);
    MPI_Datatype type = bits_type(dtype);
    if (reduces(c.operation)) {
      (void)reduction(name(c.operation), dtype, c.reduce_op);  // throws if there is none
      type = arithmetic_type(dtype);
      if (itemsize(dtype) == 2) {
        job.wide_in = widened(c.input);
        in = out = job.wide_in.data();
        if (c.operation == Operation::ReduceScatter) {
          job.wide_out.resize(c.in_slices() ? static_cast<size_t>(slices_of(c)[rank()])
                                            : job.frame.count);
          out = job.wide_out.data();
        }
      }
    }
    const MPI_Op op = operation_of(dtype == DType::Bool ? on_bool(c.reduce_op) : c.reduce_op);
    lay_out(c.input_counts, job.in_counts, job.in_begins);
    lay_out(c.in_slices() ? slices_of(c) : c.output_counts, job.out_counts, job.out_begins);
    check_mpi(post(job, in, out, n, type, op), describe(job.collective).c_str());
  }

  int post(QueuedCollective& job, void* in, void* out, int n, MPI_Datatype type, MPI_Op op) {
    const Collective& c = job.collective;
    MPI_Request* const request = &job.request;
    const int root = c.root;
    const int tag = c.options.tag;
    const bool here = rank() == root;
    switch (c.operation) {
      case Operation::AllReduce:
        return MPI_Iallreduce(MPI_IN_PLACE, out, n, type, op, comm_, request);
      case Operation::Broadcast: return MPI_Ibcast(out, n, type, root, comm_, request);
      case Operation::Reduce:
        return MPI_Ireduce(here ? MPI_IN_PLACE : in, here ? out : nullptr, n, type, op, root, comm_,
                           request);
      case Operation::Gather: return MPI_Igather(in, n, type, out, n, type, root, comm_, request);
      case Operation::Scatter: return MPI_Iscatter(in, n, type, out, n, type, root, comm_, request);
      case Operation::AllGather:
        if (c.in_slices())
          return MPI_Iallgatherv(MPI_IN_PLACE, 0, type, out, job.out_counts.data(),
                                 job.out_begins.data(), type, comm_, request);
        if (!c.output_counts.empty())
          return MPI_Iallgatherv(in, job.out_counts[rank()], type, out, job.out_counts.data(),
                                 job.out_begins.data(), type, comm_, request);
        return MPI_Iallgather(in, n, type, out, n, type, comm_, request);
      case Operation::ReduceScatter:
        if (c.in_slices()) {
          if (job.wide_out.empty()) {
            job.sum.resize(static_cast<size_t>(job.out_counts[rank()]) * itemsize(job.frame.dtype));
            out = job.sum.data();
          }
          return MPI_Ireduce_scatter(in, out, job.out_counts.data(), type, op, comm_, request);
        }
        return MPI_Ireduce_scatter_block(in, out, n, type, op, comm_, request);
      case Operation::AllToAll:
        if (c.input_counts.empty())
          return MPI_Ialltoall(in, n / size(), type, out, n / size(), type, comm_, request);
        return MPI_Ialltoallv(in, job.in_counts.data(), job.in_begins.data(), type, out,
                              job.out_counts.data(), job.out_begins.data(), type, comm_, request);
      case Operation::SendRecv:
        if (c.input.defined()) return MPI_Isend(in, n, type, root, tag, comm_, request);
        return MPI_Irecv(out, n, type, root == kAnyRank ? MPI_ANY_SOURCE : root, tag, comm_,
                         request);
      default: return MPI_Ibarrier(comm_, request);
    }
  }

  void finish(QueuedCollective& job) {
    const Collective& c = job.collective;
    if (reduces(c.operation) && c.output.defined() && job.frame.count > 0) scale(job);
    deliver(c);
  }

  // Averages are sums until here, and 16-bit results wide.
  void scale(QueuedCollective& job) {
    const Collective& c = job.collective;
    void* result = c.output.raw_data();
    size_t count = job.frame.count;
    if (c.operation == Operation::ReduceScatter && c.in_slices()) {
      count = static_cast<size_t>(job.out_counts[rank()]);
      result = static_cast<std::byte*>(result) +
               static_cast<size_t>(job.out_begins[rank()]) * itemsize(job.frame.dtype);
    }
    const void* wide = job.sum.empty() ? result : job.sum.data();
    if (!job.wide_out.empty())
      wide = job.wide_out.data();
    else if (!job.wide_in.empty())
      wide = job.wide_in.data();
    reduction(name(c.operation), job.frame.dtype, c.reduce_op).finish(result, wide, count, size());
  }

  MPI_Comm comm_;
  const std::chrono::milliseconds timeout_;
  const int exceptions_at_birth_;
  std::mutex jobs_mutex_;
  std::deque<std::shared_ptr<QueuedCollective>> jobs_;
  std::condition_variable wakeup_;
  bool stop_ = false;
  std::thread worker_;
};

// Collective over all processes of the MPI job. Initialises MPI, which is finalised with this group
// and cannot come back; groups split off must have gone before. Throws DistributedError when MPI
// cannot be initialised for threads.
std::shared_ptr<ProcessGroup> mpi_process_group(std::chrono::milliseconds timeout) {
  int initialized = 0;
  int provided = 0;
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Query_thread(&provided);
  else
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
              "MPI_Init_thread");
  CHECK_AS(DistributedError, provided >= MPI_THREAD_SERIALIZED,
           "mpi: this MPI library does not let several threads call it, one at a time");
  return std::make_shared<MpiProcessGroup>(MPI_COMM_WORLD, timeout);
}

std::shared_ptr<ProcessGroup> make(const GroupRequest& request) {
  auto group = mpi_process_group(request.timeout);
  const RankEnvironment& environment = request.environment;
  CHECK_AS(OutOfStepError, group->size() == environment.size && group->rank() == environment.rank,
           "mpi: this is rank ", group->rank(), " of ", group->size(), " to MPI, and rank ",
           environment.rank, " of ", environment.size, " to ", environment.source,
           "; start the ranks with the mpirun of the MPI library in use");
  if (rank_table) {
    ConnectOptions options;
    options.backend = request.backend;
    rank_table->agree(all_gather_texts(*group, rank_table->own(options)), group->rank());
  }
  return group;
}
BEFORE_MAIN(mpi, register_group_backend("mpi", {make}));

}  // namespace

}  // namespace ringgrad
