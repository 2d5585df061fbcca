#include "ringgrad/distributed/sharded_optimizer.h"

#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

const auto kAbout = std::make_shared<const std::string>("parameters after the step");

}  // namespace

int64_t RankShare::part_size(int64_t numel) const {
  return numel / group_.size() / kArenaAlignment * kArenaAlignment;
}

// All parts have the same size; the last rank also has the remainder.
std::pair<int64_t, int64_t> RankShare::part(int64_t numel) const {
  const int64_t size = part_size(numel);
  const int64_t begin = group_.rank() * size;
  return {begin, group_.rank() + 1 == group_.size() ? numel : begin + size};
}

void RankShare::gather(const Tensor& flat) const {
  const int64_t size = part_size(flat.numel());
  const int64_t divided = size * group_.size();
  const auto range = [&](int64_t begin, int64_t end) {
    return flat.as_strided({end - begin}, {1}, flat.storage_offset() + begin);
  };
  if (size > 0) {
    const int64_t begin = group_.rank() * size;
    const Tensor own = copy_of(range(begin, begin + size), {flat.dtype(), flat.device()});
    group_.all_gather(range(0, divided), own, {.about = kAbout}).wait();
  }
  if (divided < flat.numel())
    group_.broadcast(range(divided, flat.numel()), group_.size() - 1, {.about = kAbout}).wait();
}

}  // namespace ringgrad
