#include "ringgrad/distributed/process_groups/nccl_ring.h"

#include <nccl.h>

#include <algorithm>

#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/runtime/combine.h"
#include "ringgrad/cuda_kernels/runtime/event.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/distributed/collectives/ring_chunks.h"

namespace ringgrad {
namespace {

Tensor slice(const Tensor& x, Range r) {
  return x.as_strided({static_cast<int64_t>(r.count())}, {1}, x.storage_offset() + static_cast<int64_t>(r.begin));
}

// n elements of a dtype in a working buffer; `begin` counts in the buffer's own elements, which are as large or larger.
Tensor buffer_part(const Tensor& buffer, int64_t begin, int64_t n, DType dtype) {
  const auto ratio = static_cast<int64_t>(itemsize(buffer.dtype()) / itemsize(dtype));
  return Tensor(buffer.storage(), {n}, {1}, (buffer.storage_offset() + begin) * ratio, dtype);
}

size_t bytes(const Tensor& x) { return static_cast<size_t>(x.numel()) * itemsize(x.dtype()); }

cuda::Combination combination_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Min:
      return cuda::Combination::Min;
    case ReduceOp::Max:
      return cuda::Combination::Max;
    default:
      return cuda::Combination::Sum;
  }
}

}  // namespace

// Step t of 2 (size-1) of Patarasuk & Yuan 2009, as in ring.cpp: the chunk that comes in is rank - t - 1, the one that
// leaves is rank - t, which came in one step earlier. In the first size-1 steps partial results travel, from `partial`
// to the neighbour's `incoming`; in the last of them the sum is complete and goes to its place in x.
//
// The same segment of every chunk uses the same part of the two buffers, and `added[s]` marks when that part has been
// used: so a transfer waits for the addition of its own segment one step ago, and for no other.
std::vector<Tensor> nccl_ring_all_reduce(NcclCommunicator& communicator, Stream adding, const Tensor& x, ReduceOp op,
                                         size_t segment_bytes) {
  const int size = communicator.size(), rank = communicator.rank(), last_reducing = size - 2;
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  if (size == 1 || x.numel() == 0) return {};
  const Stream stream = communicator.stream();
  const DType partial_dtype = cuda::partial_dtype(x.dtype());
  const Range all{0, static_cast<size_t>(x.numel())};
  const auto chunk = static_cast<int64_t>(chunk_of(all, size, size - 1).count());  // the largest one
  const int64_t segment = std::clamp<int64_t>(static_cast<int64_t>(segment_bytes / itemsize(partial_dtype)), 1, chunk);
  const int64_t segments = (chunk + segment - 1) / segment;
  const Tensor incoming = empty({segments * segment}, {partial_dtype, x.device()}), partial = empty_like(incoming);
  std::vector<cuda::Event> added;
  for (int64_t s = 0; s < segments; ++s) added.emplace_back(x.device());

  for (int step = 0; step < 2 * (size - 1); ++step) {
    const bool reducing = step <= last_reducing;
    for (int64_t s = 0; s < segments; ++s) {
      const auto items = [&](int c) { return slice(x, chunk_of(chunk_of(all, size, c), segments, s)); };
      const Tensor own = items(rank - step - 1), before = items(rank - step);
      const auto part = [&](const Tensor& buffer, const Tensor& like, DType dtype) {
        return buffer_part(buffer, s * segment, like.numel(), dtype);
      };
      const Tensor leaving = step == 0 || !reducing ? before : part(partial, before, partial_dtype);
      const Tensor arriving = reducing ? part(incoming, own, step == 0 ? x.dtype() : partial_dtype) : own;
      if (step > 0 && step <= last_reducing + 1) added[static_cast<size_t>(s)].block(stream);
      communicator.together([&](ncclComm* comm) {
        if (leaving.numel() > 0)
          communicator.check(ncclSend(leaving.raw_data(), bytes(leaving), ncclUint8, right, comm, cuda::native(stream)),
                             "ncclSend");
        if (arriving.numel() > 0)
          communicator.check(
              ncclRecv(arriving.raw_data(), bytes(arriving), ncclUint8, left, comm, cuda::native(stream)), "ncclRecv");
      });
      if (!reducing) continue;
      cuda::wait_for(adding, stream);
      const bool complete = step == last_reducing;
      cuda::combine(adding, complete ? own : part(partial, own, partial_dtype), own, arriving, combination_of(op),
                    complete && op == ReduceOp::Average ? size : 1);
      added[static_cast<size_t>(s)].record(adding);
    }
  }
  return {incoming, partial};
}

}  // namespace ringgrad
