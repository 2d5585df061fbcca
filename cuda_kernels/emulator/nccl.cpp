// Emulated NCCL. A collective is a stream operation in which the ranks' threads meet. The last to
// arrive does the work for all of them, in the order of ranks, so all get the same bits. If they
// disagree, no rank waits any longer.
//
// On a stream that is being captured it becomes a node of the graph, as on a device. "Using NCCL
// with CUDA Graphs" in NCCL's user guide says that all ranks must agree on whether an operation is
// captured. The same disagreement is an error here.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/cuda_kernels/emulator/include/cuda_bf16.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace {

using namespace ringgrad;

enum class Kind { AllReduce, Broadcast, Reduce, AllGather, ReduceScatter };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather",
                                  "ncclReduceScatter"};

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  bool captured = false;

  const char* name() const { return kNames[static_cast<int>(kind)]; }
  bool agrees_with(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root && captured == other.captured;
  }
  std::string describe() const {
    return str(name(), captured ? " in a graph" : "", " of ", count, " elements of type ",
               static_cast<int>(type), ", root ", root);
  }
};

// One collective, from the first rank's arrival to the last one's return.
struct Collective {
  std::vector<Call> calls;    // one per rank
  std::vector<bool> arrived;  // one per rank
  int arrivals = 0;
  int returns = 0;
  bool done = false;
};

// The state that the ranks of one communicator share.
struct CommunicatorState {
  int size = 0;
  int joined = 0;
  int aborted = 0;
  std::mutex mutex;  // guards everything, and `aborted` of its communicators
  std::condition_variable changed;
  std::map<uint64_t, Collective> collectives;                       // keyed by number
  std::map<std::pair<int, int>, std::deque<std::string>> messages;  // from, to
  std::string error;                                                // the first disagreement
};

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <class T, class A>
void reduce_as(const std::vector<const void*>& from, void* to, size_t offset, size_t count,
               ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t rank) {
      return static_cast<A>(static_cast<const T*>(from[rank])[offset + i]);
    };
    A total = at(0);
    for (size_t rank = 1; rank < from.size(); ++rank)
      total = op == ncclProd  ? total * at(rank)
              : op == ncclMax ? std::max(total, at(rank))
              : op == ncclMin ? std::min(total, at(rank))
                              : static_cast<A>(total + at(rank));
    if (op == ncclAvg) total = static_cast<A>(total / static_cast<A>(from.size()));
    static_cast<T*>(to)[i] = T(total);
  }
}

void reduce(const std::vector<const void*>& from, void* to, size_t offset, size_t count,
            ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclUint8: return reduce_as<uint8_t, int64_t>(from, to, offset, count, op);
    case ncclInt32: return reduce_as<int32_t, int64_t>(from, to, offset, count, op);
    case ncclInt64: return reduce_as<int64_t, int64_t>(from, to, offset, count, op);
    case ncclFloat16: return reduce_as<__half, float>(from, to, offset, count, op);
    case ncclBfloat16: return reduce_as<__nv_bfloat16, float>(from, to, offset, count, op);
    case ncclFloat32: return reduce_as<float, float>(from, to, offset, count, op);
    default: return reduce_as<double, double>(from, to, offset, count, op);
  }
}

// All results are computed before any is written, because a rank may receive into the memory that
// it sends.
void execute(const std::vector<Call>& calls) {
  const Call& first = calls[0];
  const size_t ranks = calls.size();
  const size_t bytes = first.count * bytes_of(first.type);
  std::vector<const void*> from;
  for (const Call& call : calls) from.push_back(call.send);
  std::vector<std::string> results(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::string& result = results[rank];
    const bool is_root = static_cast<int>(rank) == first.root;
    switch (first.kind) {
      case Kind::Broadcast:
        result.assign(static_cast<const char*>(from[static_cast<size_t>(first.root)]), bytes);
        break;
      case Kind::AllGather:
        for (const void* part : from) result.append(static_cast<const char*>(part), bytes);
        break;
      case Kind::Reduce:
        if (!is_root) break;
        [[fallthrough]];
      default:
        result.resize(bytes);
        reduce(from, result.data(), first.kind == Kind::ReduceScatter ? rank * first.count : 0,
               first.count, first.type, first.op);
    }
  }
  for (size_t rank = 0; rank < ranks; ++rank)
    if (!results[rank].empty())
      std::memcpy(calls[rank].receive, results[rank].data(), results[rank].size());
}

std::mutex states_mutex;
std::map<std::string, std::shared_ptr<CommunicatorState>>& states() {
  static auto* all = new std::map<std::string, std::shared_ptr<CommunicatorState>>;
  return *all;
}

// Operations issued between ncclGroupStart and ncclGroupEnd. They run together: sends before
// receives.
struct Deferred {
  bool receives;
  ncclComm_t comm;
  cudaStream_t stream;
  emulator::Operation operation;
  const char* name;
};
thread_local int group_depth = 0;
thread_local std::vector<Deferred> deferred;

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<CommunicatorState> state;
  int rank;
  int device;
  bool blocking;
  // A last call that does not block continues until its state is queried.
  std::atomic<bool> in_background = false;
  uint64_t collectives = 0;  // called by this rank
  bool aborted = false;
  int captured = 0;  // operations in graphs that are alive
};

namespace {

// The communicator outlives ncclCommAbort until its last operation has run.
using Comm = std::shared_ptr<ncclComm>;
std::map<ncclComm_t, Comm>& comms() {
  static auto* all = new std::map<ncclComm_t, Comm>;
  return *all;
}
Comm find(ncclComm_t handle) {
  std::lock_guard lock(states_mutex);
  const auto found = comms().find(handle);
  return found == comms().end() ? nullptr : found->second;
}

void run_collective(const Comm& comm, const Call& call) {
  CommunicatorState& state = *comm->state;
  std::unique_lock lock(state.mutex);
  if (comm->aborted) return;
  if (emulator::must_not_wait() && state.size > 1) throw emulator::NotReady();
  const uint64_t number = comm->collectives++;
  Collective& collective = state.collectives[number];
  collective.calls.resize(static_cast<size_t>(state.size), call);
  collective.arrived.resize(static_cast<size_t>(state.size));
  collective.calls[static_cast<size_t>(comm->rank)] = call;
  collective.arrived[static_cast<size_t>(comm->rank)] = true;
  for (int rank = 0; rank < state.size; ++rank) {
    const Call& other = collective.calls[static_cast<size_t>(rank)];
    if (collective.arrived[static_cast<size_t>(rank)] && !call.agrees_with(other) &&
        state.error.empty())
      state.error = str("rank ", comm->rank, " calls ", call.describe(), ", rank ", rank, " ",
                        other.describe());
  }
  if (++collective.arrivals == state.size && state.error.empty()) {
    execute(collective.calls);
    collective.done = true;
  }
  state.changed.notify_all();
  state.changed.wait(lock,
                     [&] { return collective.done || comm->aborted || !state.error.empty(); });
  if (collective.done && ++collective.returns == state.size) state.collectives.erase(number);
}

// A graph needs the communicator until the last copy of the result is destroyed.
std::shared_ptr<void> needed_by_graph(const Comm& comm) {
  std::lock_guard lock(comm->state->mutex);
  ++comm->captured;
  return {comm.get(), [comm](void*) {
            std::lock_guard at_the_end(comm->state->mutex);
            --comm->captured;
            comm->state->changed.notify_all();
          }};
}

ncclResult_t submit(Deferred one) {
  if (group_depth > 0) {
    deferred.push_back(std::move(one));
    return ncclSuccess;
  }
  const Comm comm = find(one.comm);
  auto& runtime = emulator::Runtime::instance();
  const auto stream = runtime.find_stream("an operation of NCCL", one.stream);
  if (!comm || !stream || stream->device != comm->device) return ncclInvalidArgument;
  if (is_captured(one.stream))
    one.operation = [operation = std::move(one.operation), needed = needed_by_graph(comm)] {
      operation();
    };
  if (runtime.submit(stream, std::move(one.operation), one.name)) return ncclUnhandledCudaError;
  comm->in_background = !comm->blocking;
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t collective(Call call, ncclComm_t handle, cudaStream_t stream) {
  const Comm comm = find(handle);
  if (!comm || comm->in_background) return ncclInvalidArgument;
  call.captured = is_captured(stream);
  return submit({true, handle, stream, [comm, call] { run_collective(comm, call); }, call.name()});
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclSystemError: return "the emulated NCCL connects threads of one process only";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unhandled error";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  const Comm comm = find(handle);
  thread_local std::string text;
  if (!comm) return "";
  std::lock_guard lock(comm->state->mutex);
  return (text = comm->state->error).c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static int next = 0;
  std::lock_guard lock(mutex);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "emulated %d %d", getpid(), next++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  int process = 0;
  if (std::sscanf(id.internal, "emulated %d", &process) != 1 || process != getpid())
    return ncclSystemError;
  std::shared_ptr<CommunicatorState> state;
  {
    std::lock_guard lock(states_mutex);
    auto& known = states()[std::string(id.internal)];
    if (!known) known = std::make_shared<CommunicatorState>();
    state = known;
    auto comm = std::make_shared<ncclComm>();
    comm->state = state;
    comm->rank = rank;
    comm->device = emulator::current_device();
    comm->blocking = !config || config->blocking;
    *handle = comm.get();
    comms()[*handle] = std::move(comm);
  }
  std::unique_lock lock(state->mutex);
  state->size = size;
  ++state->joined;
  state->changed.notify_all();
  if (config && !config->blocking) return state->joined < size ? ncclInProgress : ncclSuccess;
  state->changed.wait(lock, [&] { return state->joined >= size; });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const Comm comm = find(handle);
  if (!comm) return ncclInvalidArgument;
  std::lock_guard lock(comm->state->mutex);
  const bool in_progress =
      comm->in_background.exchange(false) || comm->state->joined < comm->state->size;
  *error = !comm->state->error.empty() ? ncclInvalidUsage
           : in_progress               ? ncclInProgress
                                       : ncclSuccess;
  return ncclSuccess;
}

// Waits until all graphs with operations of this rank are gone, as NCCL's commDestroySync (init.cc,
// 2.28) does.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const Comm comm = find(handle);
  if (!comm) return ncclInvalidArgument;
  {
    std::unique_lock lock(comm->state->mutex);
    comm->aborted = emulator::config().nccl_aborts;
    comm->state->changed.notify_all();
    comm->state->changed.wait(lock, [&] { return comm->captured == 0; });
  }
  std::lock_guard lock(states_mutex);
  comms().erase(handle);
  if (++comm->state->aborted == comm->state->size)
    std::erase_if(states(), [&](const auto& entry) { return entry.second == comm->state; });
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) { return ncclCommAbort(handle); }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  auto together = std::move(deferred);
  deferred.clear();
  std::stable_partition(together.begin(), together.end(),
                        [](const Deferred& one) { return !one.receives; });
  ncclResult_t result = ncclSuccess;
  for (Deferred& one : together)
    if (result = submit(std::move(one)); result && result != ncclInProgress) break;
  return result;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::AllReduce, send, receive, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::Broadcast, send, receive, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::Reduce, send, receive, count, type, op, root}, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::AllGather, send, receive, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::ReduceScatter, send, receive, count, type, op, 0}, comm, stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  const Comm comm = find(handle);
  if (!comm || comm->in_background) return ncclInvalidArgument;
  const auto body = [=] {
    CommunicatorState& state = *comm->state;
    std::lock_guard lock(state.mutex);
    state.messages[{comm->rank, peer}].emplace_back(static_cast<const char*>(send),
                                                    count * bytes_of(type));
    state.changed.notify_all();
  };
  return submit({false, handle, stream, body, "ncclSend"});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  const Comm comm = find(handle);
  if (!comm || comm->in_background) return ncclInvalidArgument;
  const auto body = [=] {
    CommunicatorState& state = *comm->state;
    std::unique_lock lock(state.mutex);
    auto& inbox = state.messages[{peer, comm->rank}];
    if (emulator::must_not_wait() && inbox.empty()) throw emulator::NotReady();
    state.changed.wait(lock,
                       [&] { return !inbox.empty() || comm->aborted || !state.error.empty(); });
    if (inbox.empty() || comm->aborted) return;
    const std::string message = std::move(inbox.front());
    inbox.pop_front();
    if (message.size() != count * bytes_of(type) && state.error.empty()) {
      state.error = str("ncclRecv of ", count * bytes_of(type), " bytes, rank ", peer, " sends ",
                        message.size());
      state.changed.notify_all();
    }
    std::memcpy(receive, message.data(), std::min(message.size(), count * bytes_of(type)));
  };
  return submit({true, handle, stream, body, "ncclRecv"});
}
