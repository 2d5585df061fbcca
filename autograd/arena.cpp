#include "ringgrad/autograd/arena.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

int64_t padded(int64_t numel) {
  return (numel + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

Tensor flat_view(const Tensor& array, int64_t begin, int64_t numel) {
  return array.as_strided({numel}, {1}, begin);
}

Tensor shaped_view(const Tensor& array, int64_t begin, const Shape& shape) {
  return array.as_strided(shape, contiguous_strides(shape), begin);
}

// Returns true if `next` comes directly after `previous` in the arena's layout, in values and
// gradients.
//
// The layout is a property of the tensors: neighbours in an arena recognise each other by their
// addresses. A parameter that was moved, converted or given another gradient stands alone until the
// next flatten_parameters().
bool follows(const Tensor& previous, const Tensor& next) {
  const auto adjacent = [&](const Tensor& a, const Tensor& b) {
    return a.shares_memory_with(b) &&
           b.storage_offset() == a.storage_offset() + padded(previous.numel());
  };
  return previous.dtype() == next.dtype() && adjacent(previous, next) &&
         adjacent(previous.grad(), next.grad());
}

// Returns true if these parameters are already an arena, in this order.
bool lie_in_order(const std::vector<Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].is_contiguous() || !parameters[i].grad()) return false;
    if (i > 0 && !follows(parameters[i - 1], parameters[i])) return false;
  }
  return true;
}

// Throws if two parameters share elements, because one of them would become a separate copy. A
// parameter whose elements are not contiguous in memory is not checked.
void check_no_overlap(const std::vector<Tensor>& parameters) {
  struct Place {
    const char* begin;
    const char* end;
    const Tensor* parameter;
  };
  std::vector<Place> places;
  for (const Tensor& p : parameters) {
    const auto* begin = static_cast<const char*>(p.raw_data());
    const int64_t bytes = p.flat_numel() * static_cast<int64_t>(itemsize(p.dtype()));
    if (bytes > 0) places.push_back({begin, begin + bytes, &p});
  }
  std::ranges::sort(places, {}, &Place::begin);
  for (size_t i = 1; i < places.size(); ++i) {
    const Place& a = places[i - 1];
    const Place& b = places[i];
    CHECK(b.begin >= a.end || a.parameter->is_same(*b.parameter), "flatten_parameters: parameters ",
          a.parameter - parameters.data(), " of shape ", a.parameter->shape(), " and ",
          b.parameter - parameters.data(), " of shape ", b.parameter->shape(),
          " are different tensors in the same memory, expected memory of its own for each: in the "
          "arena they would no longer change together; register the same tensor in both modules");
  }
}

}  // namespace

std::vector<ArenaRange> arena_ranges(const std::vector<Tensor>& parameters) {
  std::vector<int> order(parameters.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int>(i);
    const Tensor& p = parameters[i];
    if (!p.is_contiguous()) p.set_data(as_contiguous(p));
    if (!p.grad()) p.set_grad(zeros(p.shape(), {p.dtype(), p.device()}));
    if (!p.grad().is_contiguous() || !p.grad().is_leaf()) p.set_grad(as_contiguous(p.grad()));
  }
  // An empty tensor comes before the tensor that begins at the same address.
  std::ranges::sort(order, {}, [&](int i) {
    const Tensor& p = parameters[i];
    return std::tuple(p.storage()->data(), p.storage_offset(), p.numel());
  });

  std::vector<ArenaRange> ranges;
  for (int i : order) {
    const Tensor& p = parameters[i];
    const bool extends = !ranges.empty() && follows(parameters[ranges.back().parameters.back()], p);
    if (!extends) ranges.emplace_back();
    ArenaRange& range = ranges.back();
    const int64_t begin =
        extends ? p.storage_offset() - parameters[range.parameters.front()].storage_offset() : 0;
    range.parameters.push_back(i);
    range.offsets.push_back(begin);
  }
  // The order must not depend on addresses, because they differ between ranks and sums over ranges
  // must not. In an arena the last parameter comes first.
  std::ranges::sort(ranges, std::ranges::greater(),
                    [](const ArenaRange& range) { return range.parameters.front(); });
  for (ArenaRange& range : ranges) {
    const Tensor& first = parameters[range.parameters.front()];
    const int64_t numel = range.offsets.back() + parameters[range.parameters.back()].numel();
    range.values = flat_view(first, first.storage_offset(), numel);
    range.grads = flat_view(first.grad(), first.grad().storage_offset(), numel);
  }
  return ranges;
}

void flatten_parameters(const std::vector<Tensor>& parameters, const AllocateGrads& allocate) {
  check_no_overlap(parameters);
  using Kind = std::pair<DType, std::pair<DeviceType, int>>;
  std::map<Kind, std::vector<Tensor>> kinds;
  for (auto p = parameters.rbegin(); p != parameters.rend(); ++p)
    kinds[{p->dtype(), {p->device().type, p->device().index}}].push_back(*p);

  for (const auto& [kind, members] : kinds) {
    if (!allocate && arena_ranges(members).size() == 1) continue;
    int64_t numel = 0;
    for (const Tensor& p : members) numel += padded(p.numel());
    const TensorOptions options{members[0].dtype(), members[0].device()};
    // If they stay, other holders of the values, such as a state_dict(), stay valid as well.
    const bool stay = lie_in_order(members);
    const Tensor values = stay ? Tensor() : zeros({numel}, options);
    const Tensor grads = allocate ? allocate(numel, options) : zeros({numel}, options);
    int64_t begin = 0;
    for (const Tensor& p : members) {
      const Tensor grad = shaped_view(grads, begin, p.shape());
      if (p.grad()) copy_(grad, p.grad());
      if (!stay) {
        const Tensor value = shaped_view(values, begin, p.shape());
        copy_(value, p);
        p.set_data(value);
      }
      p.set_grad(grad);
      begin += padded(p.numel());
    }
  }
}

}  // namespace ringgrad
