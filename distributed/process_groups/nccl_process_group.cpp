#include "ringgrad/distributed/process_groups/nccl_process_group.h"

#include <nccl.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/runtime/event.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/distributed/collectives/run_collective.h"
#include "ringgrad/distributed/process_groups/nccl_communicator.h"
#include "ringgrad/distributed/process_groups/nccl_ring.h"

namespace ringgrad {
namespace {

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

Tensor flat(const Tensor& x) {
  return Tensor(x.storage(), {static_cast<int64_t>(items_in(x))}, {1}, x.storage_offset(), x.dtype());
}

}  // namespace

// A collective under way. It keeps the tensors until the stream that waits for it may let them go.
class NcclProcessGroup::Pending final : public Work::State {
 public:
  Pending(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<cuda::Event> done, Collective collective,
          std::vector<Tensor> memory, Device device)
      : communicator_(std::move(communicator)),
        done_(std::move(done)),
        collective_(std::move(collective)),
        memory_(std::move(memory)),
        device_(device) {}
  ~Pending() override {
    try {
      if (!waited_) done_->block(current_stream(device_));
    } catch (const std::exception&) {  // the device is lost; who waits for it learns that
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
  bool waited_ = false;
};

NcclProcessGroup::NcclProcessGroup(std::shared_ptr<ProcessGroup> host, Device device, const NcclOptions& options)
    : ProcessGroup(host->rank(), host->size(), device), host_(std::move(host)), options_(options) {
  CHECK_AS(DeviceError, device.is_cuda(), "nccl: the rank's device is ", device, ", expected a CUDA device");
  CHECK(options.segment_bytes > 0, "nccl: segments of 0 bytes");
  if (options.all_reduce == NcclAllReduce::Ring) adding_ = std::make_unique<cuda::OwnedStream>(device);
  communicator_ = std::make_shared<NcclCommunicator>(host_, device, options.timeout);
}

NcclProcessGroup::~NcclProcessGroup() = default;

std::string NcclProcessGroup::backend() const {
  return str(adding_ ? "nccl-ring" : "nccl", ", and ", host_->backend());
}

std::shared_ptr<Storage> NcclProcessGroup::allocate_shared(size_t bytes, Device device) {
  return device == this->device() ? std::make_shared<Storage>(bytes, device) : host_->allocate_shared(bytes, device);
}

std::shared_ptr<ProcessGroup> NcclProcessGroup::split(int color, int key) {
  auto part = host_->split(color, key);
  return part ? std::make_shared<NcclProcessGroup>(std::move(part), device(), options_) : nullptr;
}

void NcclProcessGroup::abort(const std::string& reason, FailureKind kind) { communicator_->give_up({kind, reason}); }

Work NcclProcessGroup::issue(Collective c) {
  const bool on_device =
      (c.input.defined() && c.input.device().is_cuda()) || (c.output.defined() && c.output.device().is_cuda());
  if (!on_device) return issue_on_host(std::move(c));

  (void)nccl_type(c.operation, c.part().dtype());  // throws before anything is queued
  std::vector<Tensor> memory;
  auto done = communicator_->queue(describe(c), [&] {
    if (c.operation == Operation::AllReduce && adding_)
      memory =
          nccl_ring_all_reduce(*communicator_, adding_->get(), flat(c.output), c.reduce_op, options_.segment_bytes);
    else
      communicator_->together([&](ncclComm* comm) { call_nccl(c, comm); });
  });
  const bool async = c.options.async;
  Work work(std::make_shared<Pending>(communicator_, std::move(done), std::move(c), std::move(memory), device()));
  if (!async) work.wait();
  return work;
}

void NcclProcessGroup::call_nccl(const Collective& c, ncclComm* comm) {
  const Tensor& x = c.part();
  const ncclDataType_t type = nccl_type(c.operation, x.dtype());
  const size_t count = items_in(x), bytes = count * itemsize(x.dtype());
  void* const in = c.input.defined() ? c.input.raw_data() : nullptr;
  void* const out = c.output.defined() ? c.output.raw_data() : nullptr;
  const cudaStream_t stream = cuda::native(communicator_->stream());
  const auto piece = [bytes](void* whole, int r) { return static_cast<char*>(whole) + static_cast<size_t>(r) * bytes; };
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
}

Work NcclProcessGroup::issue_on_host(Collective c) {
  communicator_->throw_if_failed();
  // A barrier holds for the devices, too: each rank's has done what was queued before.
  if (c.operation == Operation::Barrier) synchronize(current_stream(device()));
  return issue_in(*host_, std::move(c));
}

}  // namespace ringgrad
