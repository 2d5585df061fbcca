#include "ringgrad/distributed/zero/gradient_slices.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/overlap.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {
namespace {

Tensor range_of(const Tensor& flat, int64_t begin, int64_t end) {
  return flat.as_strided({end - begin}, {1}, flat.storage_offset() + begin);
}

int64_t bytes_of(const Tensor& flat, int64_t elements) {
  return elements * static_cast<int64_t>(itemsize(flat.dtype()));
}

// Makes these elements zeros, and gives their whole pages back to the system until they are written
// again. Memory that ranks share is a file with a hole then.
void release_pages(const Tensor& flat, int64_t begin, int64_t end) {
  if (begin == end) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const first = static_cast<std::byte*>(flat.raw_data()) + bytes_of(flat, begin);
  auto* const last = static_cast<std::byte*>(flat.raw_data()) + bytes_of(flat, end);
  const auto up = (reinterpret_cast<uintptr_t>(first) + page - 1) / page * page;
  const auto down = reinterpret_cast<uintptr_t>(last) / page * page;
  const auto zero = [](std::byte* from, std::byte* to) {
    std::memset(from, 0, static_cast<size_t>(to - from));
  };
  if (up >= down) return zero(first, last);
  auto* const pages = reinterpret_cast<std::byte*>(up);
  const size_t size = down - up;
  zero(first, pages);
  zero(pages + size, last);
  if (madvise(pages, size, MADV_REMOVE) != 0 && madvise(pages, size, MADV_DONTNEED) != 0)
    zero(pages, pages + size);
}

}  // namespace

GradientSlices::GradientSlices(int stage, ProcessGroup& group, NamedTensors parameters,
                               std::vector<ArenaRange> arenas,
                               const std::vector<GradientBucket>& buckets, bool whole_norms)
    : stage_(stage),
      group_(group),
      parameters_(std::move(parameters)),
      arenas_(std::move(arenas)),
      places_(parameters_.size()),
      whole_norms_(whole_norms) {
  const Device device = arenas_[0].grads.device();
  CHECK(stage == 1 || stage == 2, "zero: stage ", stage, ", expected 1 or 2");
  CHECK(stage == 1 || device.is_cpu(), "zero: stage 2 on ", device,
        ", which gives back no part of an array; use stage 1");
  for (size_t a = 0; a < arenas_.size(); ++a) {
    for (size_t k = 0; k < arenas_[a].parameters.size(); ++k)
      places_[arenas_[a].parameters[k]] = {static_cast<int>(a), arenas_[a].offsets[k]};
    const Tensor& grads = arenas_[a].grads;
    const auto bytes = static_cast<size_t>(bytes_of(grads, grads.numel()));
    auto memory = group.reaches(device) ? group.allocate_shared(bytes, device)
                                        : std::make_shared<Storage>(bytes, device);
    unguarded_.emplace_back(memory, Shape{grads.numel()}, Strides{1}, 0, grads.dtype());
    arrivals_.push_back(std::make_shared<Arrivals>());
    void* const data = memory->data();
    const auto guarded =
        std::make_shared<Storage>(data, bytes, device, [memory = std::move(memory)] {});
    if (device.is_cpu())
      guarded->before_access = [arrivals = arrivals_[a]](const Tensor& x) {
        const auto [first, last] = extent(x);
        arrivals->wait(bytes_of(x, x.storage_offset() + first),
                       bytes_of(x, x.storage_offset() + last + 1));
      };
    arenas_[a].values = Tensor(guarded, {grads.numel()}, {1}, 0, grads.dtype());
    fill_(arenas_[a].values, 0);
  }
  move_values(/*first=*/true);
  plan(buckets);
  for (Slice& slice : slices_) release(slice);
  for (const auto& [name, parameter] : parameters_)
    parameter.autograd_meta()->is_averaged_in_parts = true;
}

// The group must not end while parameters travel. Other ranks' slices come back into the account of
// the memory that holds them.
GradientSlices::~GradientSlices() {
  for (const auto& [name, parameter] : parameters_)
    parameter.autograd_meta()->is_averaged_in_parts = false;
  for (const auto& arrivals : arrivals_) try {
      arrivals->wait();
    } catch (const std::exception&) {  // whoever uses a parameter hears it
    }
  for (Slice& slice : slices_)
    if (stage_ == 2 && !slice.written) written(slice);
}

void GradientSlices::plan(const std::vector<GradientBucket>& buckets) {
  for (Slice& slice : slices_)
    if (!slice.written) written(slice);
  slices_.clear();
  ++layout_;
  for (const GradientBucket& bucket : buckets) {
    const auto& [arena, begin, end, reach] = bucket.range;
    const Range own = chunk_of({static_cast<size_t>(begin), static_cast<size_t>(end)},
                               group_.size(), group_.rank());
    slices_.push_back({arena, begin, end, static_cast<int64_t>(own.begin),
                       static_cast<int64_t>(own.end), bucket.names, true});
  }
}

Tensor GradientSlices::view(const Tensor& flat, int i) const {
  const Shape& shape = parameters_[i].second.shape();
  return flat.as_strided(shape, contiguous_strides(shape),
                         flat.storage_offset() + places_[i].second);
}

// Someone may have moved a parameter since, such as an optimizer of some of the parameters.
void GradientSlices::move_values(bool first) {
  const NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const Tensor place = view(arenas_[places_[i].first].values, i);
    if (parameter.raw_data() == place.raw_data() && parameter.is_contiguous()) continue;
    CHECK(first || (parameter.dtype() == place.dtype() && parameter.device() == place.device()),
          "zero: ", name, " is now ", parameter.dtype(), " on ", parameter.device(), ", but was ",
          place.dtype(), " on ", place.device(), " when the module was wrapped; convert it before");
    copy_(place, parameter);
    parameter.set_data(place);
  }
}

// -- a step
// -----------------------------------------------------------------------------------------

void GradientSlices::written(Slice& slice) {
  slice.written = true;
  const int64_t others = slice.end - slice.begin - (slice.own_end - slice.own_begin);
  count_memory({}, bytes_of(arenas_[slice.arena].grads, others));
}

void GradientSlices::written(int parameter) {
  if (stage_ < 2) return;
  const auto [arena, begin] = places_[parameter];
  const int64_t end = begin + parameters_[parameter].second.numel();
  for (Slice& slice : slices_)
    if (!slice.written && slice.arena == arena && slice.begin < end && begin < slice.end)
      written(slice);
}

void GradientSlices::reduced(int bucket) { release(slices_[bucket]); }

// A pass that has failed may have written numbers of which no hook has told.
void GradientSlices::release(Slice& slice) {
  if (stage_ < 2) return;
  const Tensor& grads = arenas_[slice.arena].grads;
  release_pages(grads, slice.begin, slice.own_begin);
  release_pages(grads, slice.own_end, slice.end);
  if (!std::exchange(slice.written, false)) return;
  const int64_t others = slice.end - slice.begin - (slice.own_end - slice.own_begin);
  count_memory({}, -bytes_of(grads, others));
}

std::vector<Tensor> GradientSlices::own_gradients() const {
  std::vector<Tensor> own;
  for (const Slice& slice : slices_)
    own.push_back(range_of(arenas_[slice.arena].grads, slice.own_begin, slice.own_end));
  return own;
}

CollectiveOptions GradientSlices::options_of(const Slice& slice, bool async) const {
  return {.async = async,
          .bucket = static_cast<int32_t>(&slice - slices_.data()),
          .layout = static_cast<uint64_t>(layout_),
          .about = slice.names};
}

void GradientSlices::gather_gradients() {
  for (Slice& slice : slices_) {
    if (!slice.written) written(slice);
    const Tensor flat = range_of(arenas_[slice.arena].grads, slice.begin, slice.end);
    group_.gather_slices(flat, options_of(slice, false)).wait();
  }
}

void GradientSlices::finish() {
  has_ = Has::Averages;
  drop();
}

void GradientSlices::drop() {
  for (const auto& [name, parameter] : parameters_) parameter.set_grad({});
  for (Slice& slice : slices_) release(slice);
}

// -- for the optimizer
// ------------------------------------------------------------------------------

std::vector<ArenaRange> GradientSlices::parts(const std::vector<Tensor>& parameters) const {
  CHECK(open_,
        "zero: the wrapper of these parameters is gone, and nobody averages their gradients ",
        "any more; keep it as long as its optimizer");
  const_cast<GradientSlices*>(this)->move_values(/*first=*/false);
  std::map<const AutogradMeta*, int> positions;
  for (size_t i = 0; i < parameters.size(); ++i)
    positions[parameters[i].autograd_meta().get()] = static_cast<int>(i);
  std::vector<ArenaRange> parts;
  size_t found = 0;
  for (const auto& [name, parameter] : parameters_)
    found += positions.contains(parameter.autograd_meta().get()) ? 1 : 0;
  CHECK(found == parameters.size(), "zero: of the optimizer's ", parameters.size(),
        " parameters the wrapper averages only ", found, "; give it those of the wrapper");
  for (const Slice& slice : slices_) {
    const ArenaRange& arena = arenas_[slice.arena];
    int64_t begin = 0;
    int64_t end = 0;
    ArenaRange part;
    const auto close = [&] {
      if (part.parameters.empty()) return;
      for (int64_t& offset : part.offsets) offset -= begin;
      part.values = range_of(arena.values, begin, end);
      part.grads = range_of(arena.grads, begin, end);
      parts.push_back(std::exchange(part, {}));
    };
    for (size_t k = 0; k < arena.parameters.size(); ++k) {
      const Tensor& parameter = parameters_[arena.parameters[k]].second;
      const int64_t from = std::max(slice.own_begin, arena.offsets[k]);
      const int64_t to = std::min(slice.own_end, arena.offsets[k] + parameter.numel());
      if (from >= to) continue;
      const auto position = positions.find(parameter.autograd_meta().get());
      if (position == positions.end()) {
        close();
        continue;
      }
      if (part.parameters.empty()) begin = from;
      end = to;
      part.parameters.push_back(position->second);
      part.offsets.push_back(arena.offsets[k]);
    }
    close();
  }
  return parts;
}

// Only one rank's bits of an element are not zero.
void GradientSlices::unite(const Tensor& x) const {
  const Tensor host = copy_of(x, {x.dtype()});
  if (host.numel() == 0) return;
  const Tensor bits(host.storage(), {bytes_of(host, host.numel())}, {1},
                    bytes_of(host, host.storage_offset()), DType::UInt8);
  group_.all_reduce(bits, ReduceOp::BitOr).wait();
  copy_(x, host);
}

void GradientSlices::add(const Tensor& x) const { group_.all_reduce(x).wait(); }

// The layers of the next forward come last in the arena.
void GradientSlices::gather() const {
  for (size_t a = 0; a < arenas_.size(); ++a) {
    arrivals_[a]->wait();
    arrivals_[a]->buckets.clear();
    arenas_[a].values.storage()->bump_version();
  }
  for (auto slice = slices_.rbegin(); slice != slices_.rend(); ++slice) {
    const Tensor& flat = unguarded_[slice->arena];
    const Work work =
        group_.gather_slices(range_of(flat, slice->begin, slice->end), options_of(*slice, true));
    arrivals_[slice->arena]->buckets.push_back(
        {bytes_of(flat, slice->begin), bytes_of(flat, slice->end), work});
  }
  if (unguarded_[0].device().is_cpu()) return;
  for (const auto& arrivals : arrivals_) {
    arrivals->wait();
    arrivals->buckets.clear();  // a capture may not wait for work from before it
  }
}

// The threads that would end the work do not exist in a forked child.
void GradientSlices::Arrivals::wait(int64_t from, int64_t to) const {
  for (const auto& [begin, end, work] : buckets) {
    if (end <= from || to <= begin) continue;
    CHECK(born_after == forks || work.done(),
          "zero: a forked child uses a parameter that the ranks were gathering when it was forked; "
          "read the parameters before fork()");
    work.wait();
  }
}

void GradientSlices::set_to_zero() {
  has_ = Has::Sums;
  for (Slice& slice : slices_) release(slice);
  for (const ArenaRange& arena : arenas_) {
    const auto begin_own = [&](const Slice& slice) {
      return range_of(arena.grads, slice.own_begin, slice.own_end);
    };
    std::vector<Tensor> zeroed;
    for (const int i : arena.parameters) {
      parameters_[i].second.set_grad(view(arena.grads, i));
      zeroed.push_back(parameters_[i].second);
    }
    if (stage_ == 1) fill_(arena.grads, 0);
    for (const Slice& slice : slices_)
      if (stage_ == 2 && &arenas_[slice.arena] == &arena) fill_(begin_own(slice), 0);
    zeros_known(zeroed);
  }
}

bool GradientSlices::lend_gradients() const {
  if (!whole_norms_) return false;
  auto* const self = const_cast<GradientSlices*>(this);
  self->gather_gradients();
  for (const ArenaRange& arena : arenas_)
    for (const int i : arena.parameters) parameters_[i].second.set_grad(view(arena.grads, i));
  return true;
}

}  // namespace ringgrad
