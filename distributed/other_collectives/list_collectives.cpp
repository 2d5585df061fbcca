// Collectives of several tensors, which travel as one that holds their elements one after the
// other; and of texts.
#include <algorithm>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/overlap.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/os/shared_memory.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {
namespace {

// Checks that there is one tensor for each rank, all of one dtype and on one device.
std::vector<int64_t> check_list(Operation operation, const std::vector<Tensor>& list,
                                const Tensor& like, int ranks) {
  CHECK_AS(ShapeError, list.size() == static_cast<size_t>(ranks), name(operation), ": ",
           list.size(), " tensors, expected one for each of the ", ranks, " ranks");
  std::vector<int64_t> counts;
  for (const Tensor& x : list) {
    CHECK(x.defined(), name(operation), ": one of the tensors is undefined");
    CHECK_AS(DTypeError, x.dtype() == like.dtype(), name(operation), ": tensors of dtypes ",
             x.dtype(), " and ", like.dtype(), ", expected the same");
    CHECK_AS(DeviceError, x.device() == like.device(), name(operation), ": tensors on ", x.device(),
             " and ", like.device(), ", expected the same");
    counts.push_back(x.numel());
  }
  return counts;
}

// Returns a tensor that can hold the elements of all of these, one after the other.
Tensor room_for(const std::vector<Tensor>& list) {
  int64_t items = 0;
  for (const Tensor& x : list) items += x.numel();
  return empty({items}, {list[0].dtype(), list[0].device()});
}

void check_apart(Operation operation, const std::vector<Tensor>& parts) {
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      CHECK(!have_memory_in_common(parts[i], parts[j]), name(operation),
            ": the tensors for what rank ", j, " and rank ", i, " send, of shapes ",
            parts[j].shape(), " and ", parts[i].shape(),
            ", have memory in common, expected a place for each");
}

uint64_t hash_of_shapes(const std::vector<Tensor>& list) {
  std::vector<int64_t> words;
  for (const Tensor& x : list) {
    words.push_back(x.dim());
    words.insert(words.end(), x.shape().begin(), x.shape().end());
  }
  return hash_of(words.data(), words.size() * sizeof(int64_t));
}

}  // namespace

Work ProcessGroup::all_gather(const std::vector<Tensor>& parts, const Tensor& x,
                              const CollectiveOptions& options) {
  CHECK(x.defined(), "all_gather: x is undefined");
  const auto counts = check_list(Operation::AllGather, parts, x, size_);
  CHECK_AS(ShapeError, parts[rank_].shape() == x.shape(), "all_gather: x has shape ", x.shape(),
           ", and part ", rank_, ", its own place, shape ", parts[rank_].shape());
  check_apart(Operation::AllGather, parts);
  Collective c{Operation::AllGather, x, room_for(parts), ReduceOp::Sum, -1, options, parts};
  c.output_counts = counts;
  c.options.layout ^= hash_of_shapes(parts);
  return submit(std::move(c));
}

Work ProcessGroup::all_to_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to,
                              const CollectiveOptions& options) {
  CHECK(!to.empty(), "all_to_all: no tensors, expected one for each of the ", size_, " ranks");
  const auto input_counts = check_list(Operation::AllToAll, to, to[0], size_);
  const auto output_counts = check_list(Operation::AllToAll, from, to[0], size_);
  CHECK_AS(ShapeError, from[rank_].shape() == to[rank_].shape(), "all_to_all: rank ", rank_,
           " sends itself shape ", to[rank_].shape(), ", and expects ", from[rank_].shape());
  check_apart(Operation::AllToAll, from);
  const Tensor packed = room_for(to);
  int64_t at = 0;
  for (const Tensor& x : to) {
    kernels::copy(packed.as_strided(x.shape(), contiguous_strides(x.shape()), at), x);
    at += x.numel();
  }
  return submit({Operation::AllToAll, packed, room_for(from), ReduceOp::Sum, -1, options, from,
                 input_counts, output_counts});
}

// -- what the host knows --------------------------------------------------------------------------

namespace {

Tensor bytes_of(const std::string& text) {
  const Tensor x = empty({static_cast<int64_t>(text.size())}, {.dtype = DType::UInt8});
  if (!text.empty()) std::memcpy(x.raw_data(), text.data(), text.size());
  return x;
}

std::string text_of(const Tensor& bytes) {
  if (bytes.numel() == 0) return {};
  return {static_cast<const char*>(bytes.raw_data()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& own) {
  std::vector<Tensor> all;
  for (const int64_t size : all_gather_values<int64_t>(group, {static_cast<int64_t>(own.size())}))
    all.push_back(empty({size}, {.dtype = DType::UInt8}));
  group.all_gather(all, bytes_of(own)).wait();
  std::vector<std::string> texts;
  for (const Tensor& x : all) texts.push_back(text_of(x));
  return texts;
}

std::string broadcast_text(ProcessGroup& group, const std::string& text, Int root) {
  const Tensor size = tensor(std::vector<int64_t>{static_cast<int64_t>(text.size())});
  group.broadcast(size, root).wait();
  const Tensor bytes = group.rank() == root
                           ? bytes_of(text)
                           : empty({size.item<int64_t>()}, {.dtype = DType::UInt8});
  group.broadcast(bytes, root).wait();
  return text_of(bytes);
}

std::shared_ptr<ProcessGroup> local_group(ProcessGroup& group) {
  const auto machines = all_gather_values<int64_t>(group, {static_cast<int64_t>(machine_id())});
  const auto first = std::find(machines.begin(), machines.end(), machines[group.rank()]);
  return group.split(static_cast<int>(first - machines.begin()));
}

}  // namespace ringgrad
