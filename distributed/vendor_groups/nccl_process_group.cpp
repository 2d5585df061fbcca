#include "ringgrad/distributed/vendor_groups/nccl_process_group.h"

#include <nccl.h>

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/combine.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/distributed/vendor_groups/backend.h"

namespace ringgrad {

namespace {

ncclDataType_t nccl_type(Operation operation, DType dtype) {
  switch (dtype) {
    case DType::Float32: return ncclFloat32;
    case DType::Float64: return ncclFloat64;
    case DType::Float16: return ncclFloat16;
    case DType::BFloat16: return ncclBfloat16;
    case DType::Int64: return ncclInt64;
    case DType::Int32: return ncclInt32;
    case DType::UInt8:
    case DType::Bool: return ncclUint8;
    default: throw_unsupported_dtype(name(operation), dtype, "a number");
  }
}

ncclRedOp_t nccl_op(const Collective& c) {
  switch (c.part().dtype() == DType::Bool ? on_bool(c.reduce_op) : c.reduce_op) {
    case ReduceOp::Sum: return ncclSum;
    case ReduceOp::Average: return ncclAvg;
    case ReduceOp::Min: return ncclMin;
    case ReduceOp::Max: return ncclMax;
    case ReduceOp::Product: return ncclProd;
    default:
      throw NotImplementedError(
          str(describe(c), ": NCCL does not reduce bits; reduce a tensor on the CPU"));
  }
}

Tensor flat(const Tensor& x) { return x.as_strided({x.numel()}, {1}, x.storage_offset()); }

Tensor slice(const Tensor& x, Range r) {
  return x.as_strided({static_cast<int64_t>(r.count())}, {1},
                      x.storage_offset() + static_cast<int64_t>(r.begin));
}

// n elements of a dtype in a working buffer; `begin` counts in the buffer's own elements, which are
// as large or larger.
Tensor buffer_part(const Tensor& buffer, int64_t begin, int64_t n, DType dtype) {
  const auto ratio = static_cast<int64_t>(itemsize(buffer.dtype()) / itemsize(dtype));
  return Tensor(buffer.storage(), {n}, {1}, (buffer.storage_offset() + begin) * ratio, dtype);
}

cuda::Combination combination_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Min: return cuda::Combination::Min;
    case ReduceOp::Max: return cuda::Combination::Max;
    default: return cuda::Combination::Sum;
  }
}

}  // namespace

// A collective under way. It keeps the tensors until the stream that waits for it may let them go.
class NcclProcessGroup::Pending final : public Work::State {
 public:
  Pending(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<cuda::Event> done,
          Collective collective, std::vector<Tensor> memory, Device device)
      : communicator_(std::move(communicator)),
        done_(std::move(done)),
        collective_(std::move(collective)),
        memory_(std::move(memory)),
        device_(device),
        issued_on_(current_stream(device)) {}
  // If wait() was not called, the stream on which this began waits. Another stream may be current
  // by now, in a capture, which may not wait for work from before it.
  ~Pending() override {
    try {
      if (!waited_ && cuda::being_captured(issued_on_) == recorded_) done_->block(issued_on_);
    } catch (const std::exception&) {  // the device is lost; a waiter for it learns that
    }
  }

  void wait() override {
    communicator_->throw_if_failed();
    done_->block(current_stream(device_));
    waited_ = true;
  }
  bool done() const override { return done_->done(); }
  Work::Clock::time_point ended() const override { return {}; }

 private:
  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<cuda::Event> done_;
  Collective collective_;
  std::vector<Tensor> memory_;
  Device device_;
  Stream issued_on_;
  const bool recorded_ = cuda::capturing();
  bool waited_ = false;
};

NcclProcessGroup::NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device,
                                   const NcclOptions& options)
    : ProcessGroup(host->rank(), host->size(), device), host_(std::move(host)), options_(options) {
  CHECK_AS(DeviceError, device.is_cuda(), "nccl: the rank's device is ", device,
           ", expected a CUDA device");
  CHECK(options.segment_bytes > 0, "nccl: segments of 0 bytes");
  if (options.all_reduce == NcclAllReduce::Ring)
    adding_ = std::make_unique<cuda::OwnedStream>(device);
  communicator_ =
      std::make_shared<NcclCommunicator>(host_, device, options.timeout, options.last_resort);
}

NcclProcessGroup::~NcclProcessGroup() = default;

std::string NcclProcessGroup::backend() const {
  return str(adding_ ? "nccl-ring" : "nccl", ", and ", host_->backend());
}

std::shared_ptr<Storage> NcclProcessGroup::allocate_shared(size_t bytes, Device device) {
  check_process("allocate_shared");
  return device == this->device() ? std::make_shared<Storage>(bytes, device)
                                  : host_->allocate_shared(bytes, device);
}

std::shared_ptr<ProcessGroup> NcclProcessGroup::split(int color, int key) {
  auto part = host_->split(color, key);
  return part ? of_this_process(
                    std::make_shared<NcclProcessGroup>(std::move(part), device(), options_))
              : nullptr;
}

void NcclProcessGroup::abort(const std::string& reason, FailureKind kind) {
  communicator_->give_up({kind, reason});
}

std::optional<Failure> NcclProcessGroup::failure() { return communicator_->failure(); }

Work NcclProcessGroup::issue(Collective c) {
  const bool on_device = (c.input.defined() && c.input.device().is_cuda()) ||
                         (c.output.defined() && c.output.device().is_cuda());
  if (!on_device) return issue_on_host(std::move(c));

  // These throw before anything is queued. NCCL averages small integers as it adds them up: modulo
  // 2^8 or 2^32, so hosts do not average them, nor does it.
  (void)nccl_type(c.operation, c.part().dtype());
  if (reduces(c.operation)) {
    (void)nccl_op(c);
    (void)reduction(name(c.operation), c.part().dtype(), c.reduce_op);
  }
  if (c.operation == Operation::SendRecv)
    CHECK_AS(
        NotImplementedError, c.options.tag == 0 && c.root != kAnyRank,
        "send/recv: NCCL knows neither tags nor receives from any rank; send a tensor on the CPU");
  if (cuda::capturing() && !communicator_->recorded()) join_replays();
  std::vector<Tensor> memory;
  const auto meet = [&] {
    return c.operation == Operation::SendRecv ? Work() : agree(*host_, frame_of(c), c.options);
  };
  auto done = communicator_->queue(describe(c), c.options.timeout, meet, [&] {
    if (c.operation == Operation::AllReduce && adding_ && c.reduce_op <= ReduceOp::Max &&
        c.output.dtype() != DType::Bool)
      memory = nccl_ring_all_reduce(*communicator_, adding_->get(), flat(c.output), c.reduce_op,
                                    options_.segment_bytes);
    else
      communicator_->together([&](ncclComm* comm) { call_nccl(c, comm); });
    const StreamGuard after_it(communicator_->stream());
    deliver(c);
    return communicator_->stream();
  });
  const bool async = c.options.async;
  Work work(std::make_shared<Pending>(communicator_, std::move(done), std::move(c),
                                      std::move(memory), device()));
  if (!async) work.wait();
  return work;
}

// NCCL compares nothing: ranks that disagree would hang, or add unrelated numbers. So the hosts
// meet beside every collective, and each says which one it is in.
Work NcclProcessGroup::agree(ProcessGroup& host, const Frame& frame,
                             const CollectiveOptions& options) {
  Collective meeting{Operation::Barrier, {}, {}, ReduceOp::Sum, -1, options};
  meeting.options.async = true;
  meeting.stands_for = frame;
  return issue_in(host, std::move(meeting));
}

// Registers the recording under way for replays; it may outlive this group. Its collectives were
// compared when they were recorded, so the recording's number and the step are enough to compare.
void NcclProcessGroup::join_replays() {
  const auto take_part = [communicator = communicator_, host = host_, recording = ++recordings_](
                             Replay& replay, const std::function<void()>& launch) {
    Frame frame;
    frame.operation = Operation::Replay;
    frame.count = recording;
    frame.step = replay.step;
    const StreamGuard on(replay.stream);
    communicator->queue(
        describe(frame), {}, [&] { return agree(*host, frame, {}); },
        [&] {
          launch();
          return replay.stream;
        });
  };
  device_backend(DeviceType::CUDA).on_replay(take_part);
}

void NcclProcessGroup::call_nccl(const Collective& c, ncclComm* comm) {
  const Tensor& x = c.part();
  const ncclDataType_t type = nccl_type(c.operation, x.dtype());
  const auto count = static_cast<size_t>(x.numel());
  const size_t bytes = count * itemsize(x.dtype());
  void* const in = c.input.defined() ? c.input.raw_data() : nullptr;
  void* const out = c.output.defined() ? c.output.raw_data() : nullptr;
  const cudaStream_t stream = cuda::native(communicator_->stream());
  const auto piece = [bytes](void* whole, int r) {
    return static_cast<char*>(whole) + static_cast<size_t>(r) * bytes;
  };
  const Range all{0, count};
  const size_t each = count / static_cast<size_t>(size());
  const bool equal = each * static_cast<size_t>(size()) == count;
  const auto slice = [&](int r) {
    return static_cast<char*>(out) + chunk_of(all, size(), r).begin * itemsize(x.dtype());
  };
  const auto check = [this](ncclResult_t result, const char* call) {
    communicator_->check(result, call);
  };
  switch (c.operation) {
    case Operation::AllReduce:
      return check(ncclAllReduce(in, out, count, type, nccl_op(c), comm, stream), "ncclAllReduce");
    case Operation::Broadcast:
      return check(ncclBroadcast(in, out, count, type, c.root, comm, stream), "ncclBroadcast");
    case Operation::Reduce:
      return check(ncclReduce(in, out, count, type, nccl_op(c), c.root, comm, stream),
                   "ncclReduce");
    case Operation::AllGather:
      if (c.in_slices() && equal)
        return check(ncclAllGather(slice(rank()), out, each, type, comm, stream), "ncclAllGather");
      if (c.in_slices()) {
        for (int r = 0; r < size(); ++r)
          check(ncclBroadcast(slice(r), slice(r), chunk_of(all, size(), r).count(), type, r, comm,
                              stream),
                "ncclBroadcast");
        return;
      }
      if (!c.output_counts.empty()) return exchange_parts(c, comm, /*same_to_all=*/true);
      return check(ncclAllGather(in, out, count, type, comm, stream), "ncclAllGather");
    case Operation::ReduceScatter:
      if (c.in_slices() && equal)
        return check(ncclReduceScatter(in, slice(rank()), each, type, nccl_op(c), comm, stream),
                     "ncclReduceScatter");
      if (c.in_slices()) {
        for (int r = 0; r < size(); ++r)
          check(ncclReduce(slice(r), slice(r), chunk_of(all, size(), r).count(), type, nccl_op(c),
                           r, comm, stream),
                "ncclReduce");
        return;
      }
      return check(ncclReduceScatter(in, out, count, type, nccl_op(c), comm, stream),
                   "ncclReduceScatter");
    case Operation::Gather:
      check(ncclSend(in, count, type, c.root, comm, stream), "ncclSend");
      for (int r = 0; r < size() && rank() == c.root; ++r)
        check(ncclRecv(piece(out, r), count, type, r, comm, stream), "ncclRecv");
      return;
    case Operation::Scatter:
      for (int r = 0; r < size() && rank() == c.root; ++r)
        check(ncclSend(piece(in, r), count, type, r, comm, stream), "ncclSend");
      return check(ncclRecv(out, count, type, c.root, comm, stream), "ncclRecv");
    case Operation::AllToAll: return exchange_parts(c, comm, /*same_to_all=*/false);
    default:
      if (in) return check(ncclSend(in, count, type, c.root, comm, stream), "ncclSend");
      return check(ncclRecv(out, count, type, c.root, comm, stream), "ncclRecv");
  }
}

// Sends a part to every rank, and receives one from every rank, of any sizes.
void NcclProcessGroup::exchange_parts(const Collective& c, ncclComm* comm, bool same_to_all) {
  const ncclDataType_t type = nccl_type(c.operation, c.output.dtype());
  const cudaStream_t stream = cuda::native(communicator_->stream());
  auto* in = static_cast<const char*>(c.input.raw_data());
  auto* out = static_cast<char*>(c.output.raw_data());
  for (int r = 0; r < size(); ++r) {
    const auto items = [&](const Tensor& whole, const std::vector<int64_t>& counts) {
      return static_cast<size_t>(counts.empty() ? whole.numel() / size() : counts[r]);
    };
    const size_t sent =
        same_to_all ? static_cast<size_t>(c.input.numel()) : items(c.input, c.input_counts);
    const size_t received = items(c.output, c.output_counts);
    if (sent > 0) communicator_->check(ncclSend(in, sent, type, r, comm, stream), "ncclSend");
    if (received > 0)
      communicator_->check(ncclRecv(out, received, type, r, comm, stream), "ncclRecv");
    if (!same_to_all) in += sent * itemsize(c.input.dtype());
    out += received * itemsize(c.output.dtype());
  }
}

Work NcclProcessGroup::issue_on_host(Collective c) {
  communicator_->throw_if_failed();
  // A barrier also holds for the devices: each rank's has done the work that was queued before.
  if (c.operation == Operation::Barrier) synchronize(current_stream(device()));
  return issue_in(*host_, std::move(c));
}

// This is step t of 2 (size-1) of Patarasuk & Yuan 2009, as in ring.cpp. Chunk rank - t - 2 comes
// in, and chunk rank - t - 1, which came in one step earlier, goes out. In the first size-1 steps
// partial results travel, from `partial` to the neighbour's `incoming`. In the last of these steps
// the sum is complete and goes to its place in x.
//
// The same segment of every chunk uses the same part of the two buffers, and `added[s]` marks when
// that part has been used. So a transfer waits only for the addition of its own segment one step
// ago.
std::vector<Tensor> nccl_ring_all_reduce(NcclCommunicator& communicator, Stream adding,
                                         const Tensor& x, ReduceOp op, size_t segment_bytes) {
  const int size = communicator.size();
  const int rank = communicator.rank();
  const int last_reducing = size - 2;
  const int left = (rank + size - 1) % size;
  const int right = (rank + 1) % size;
  if (size == 1 || x.numel() == 0) return {};
  const Stream stream = communicator.stream();
  const DType partial_dtype = cuda::partial_dtype(x.dtype());
  const Range all{0, static_cast<size_t>(x.numel())};
  // The largest one.
  const auto chunk = static_cast<int64_t>(chunk_of(all, size, size - 1).count());
  const int64_t segment =
      std::clamp<int64_t>(static_cast<int64_t>(segment_bytes / itemsize(partial_dtype)), 1, chunk);
  const int64_t segments = (chunk + segment - 1) / segment;
  const Tensor incoming = empty({segments * segment}, {partial_dtype, x.device()});
  const Tensor partial = empty_like(incoming);
  std::vector<cuda::Event> added;
  for (int64_t s = 0; s < segments; ++s) added.emplace_back(x.device());

  for (int step = 0; step < 2 * (size - 1); ++step) {
    const bool reducing = step <= last_reducing;
    for (int64_t s = 0; s < segments; ++s) {
      const auto items = [&](int c) {
        return slice(x, chunk_of(chunk_of(all, size, c), segments, s));
      };
      const Tensor own = items(rank - step - 2);
      const Tensor before = items(rank - step - 1);
      const auto part = [&](const Tensor& buffer, const Tensor& like, DType dtype) {
        return buffer_part(buffer, s * segment, like.numel(), dtype);
      };
      const Tensor leaving = step == 0 || !reducing ? before : part(partial, before, partial_dtype);
      const Tensor arriving =
          reducing ? part(incoming, own, step == 0 ? x.dtype() : partial_dtype) : own;
      if (step > 0 && step <= last_reducing + 1) added[static_cast<size_t>(s)].block(stream);
      communicator.together([&](ncclComm* comm) {
        if (leaving.numel() > 0)
          communicator.check(ncclSend(leaving.raw_data(), leaving.nbytes(), ncclUint8, right, comm,
                                      cuda::native(stream)),
                             "ncclSend");
        if (arriving.numel() > 0)
          communicator.check(ncclRecv(arriving.raw_data(), arriving.nbytes(), ncclUint8, left, comm,
                                      cuda::native(stream)),
                             "ncclRecv");
      });
      if (!reducing) continue;
      cuda::wait_for(adding, stream);
      const bool complete = step == last_reducing;
      cuda::combine(adding, complete ? own : part(partial, own, partial_dtype), own, arriving,
                    combination_of(op), complete && op == ReduceOp::Average ? size : 1);
      added[static_cast<size_t>(s)].record(adding);
    }
  }
  return {incoming, partial};
}

namespace {

std::shared_ptr<ProcessGroup> make(const GroupRequest& request) {
  const int devices = std::max(1, device_count(DeviceType::CUDA));
  const Device device =
      request.device.value_or(Device(DeviceType::CUDA, request.environment.local_rank % devices));
  check_device("init_process_group", device);
  NcclOptions options;
  if (request.backend == "nccl-ring") options.all_reduce = NcclAllReduce::Ring;
  options.timeout = options.last_resort = request.timeout;
  return std::make_shared<NcclProcessGroup>(request.connect_hosts(), device, options);
}

#ifdef RINGGRAD_CUDA_EMULATED  // the emulator's NCCL connects threads
constexpr bool kBetweenProcesses = false;
#else
constexpr bool kBetweenProcesses = true;
#endif
BEFORE_MAIN(nccl, register_group_backend("nccl", {make, kBetweenProcesses}));
BEFORE_MAIN(nccl_ring, register_group_backend("nccl-ring", {make, kBetweenProcesses}));

}  // namespace

}  // namespace ringgrad
