#include "ringgrad/distributed/shards/flat_tensors.h"

#include <algorithm>
#include <map>

#include "ringgrad/autograd/arena.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

Tensor part_of(const Tensor& array, int64_t begin, const Shape& shape) {
  const auto size = static_cast<int64_t>(itemsize(array.dtype()));
  const auto release = [whole = array.storage()] {};
  auto storage =
      std::make_shared<Storage>(static_cast<char*>(array.raw_data()) + begin * size,
                                static_cast<size_t>(shape.numel() * size), array.device(), release);
  return Tensor(std::move(storage), shape, contiguous_strides(shape), 0, array.dtype());
}

// Adds a tensor at the first place from `at` on.
void add(FlatLayout& layout, size_t member, const Shape& shape, int64_t at) {
  layout.members.push_back(member);
  layout.shapes.push_back(shape);
  layout.offsets.push_back(at);
  layout.numel = at + shape.numel();
}

}  // namespace

std::vector<FlatTensors> flat_tensors(const std::vector<Tensor>& tensors) {
  std::map<DType, std::vector<size_t>> kinds;
  for (size_t i = 0; i < tensors.size(); ++i) kinds[tensors[i].dtype()].push_back(i);
  std::vector<FlatTensors> all;
  for (auto& [dtype, members] : kinds) {
    std::ranges::stable_sort(members, {}, [&](size_t i) { return tensors[i].storage_offset(); });
    const Tensor& first = tensors[members.front()];
    const int64_t begin = first.storage_offset();
    FlatLayout own{dtype, {}, {}, {}};     // of a new array
    FlatLayout theirs{dtype, {}, {}, {}};  // of the memory in which they lie
    bool together = true;
    for (const size_t i : members) {
      const Tensor& x = tensors[i];
      const int64_t gap = x.storage_offset() - begin - theirs.numel;
      together = together && x.is_contiguous() && x.shares_memory_with(first) && gap >= 0 &&
                 gap < kArenaAlignment;
      add(theirs, i, x.shape(), x.storage_offset() - begin);
      add(own, i, x.shape(), (own.numel + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
    }
    if (together)
      all.push_back({theirs, first.as_strided({theirs.numel}, {1}, begin)});
    else
      all.push_back({own, packed(own, tensors, first.device())});
  }
  return all;
}

Tensor packed(const FlatLayout& layout, std::span<const Tensor> tensors, Device device) {
  const Tensor array = empty({layout.numel}, {layout.dtype, device});
  for (size_t m = 0; m < layout.members.size(); ++m) {
    const Tensor place = part_of(array, layout.offsets[m], layout.shapes[m]);
    if (const Tensor& x = tensors[layout.members[m]])
      kernels::copy(place, x);
    else
      kernels::fill(place, -0.0);
  }
  return array;
}

void unpack(const Tensor& array, const FlatLayout& layout, std::vector<Tensor>& tensors) {
  for (size_t m = 0; m < layout.members.size(); ++m)
    tensors[layout.members[m]] = part_of(array, layout.offsets[m], layout.shapes[m]);
}

std::vector<Tensor> copies_on(Device device, const std::vector<FlatTensors>& flat, size_t tensors) {
  std::vector<Tensor> copies(tensors);
  for (const auto& [layout, array] : flat)
    unpack(copy_of(array, {layout.dtype, device}), layout, copies);
  return copies;
}

}  // namespace ringgrad
