// A pass knows the position of training after each of its batches, without making them. Positions
// count the samples of all ranks, so a run can continue on another number of ranks.
#include "ringgrad/data/loading/pass.h"

#include <algorithm>

#include "ringgrad/core/program_observer.h"

namespace ringgrad {

int64_t batches_of(int64_t samples, int64_t batch_size, bool drop_last) {
  return (samples + (drop_last ? 0 : batch_size - 1)) / batch_size;
}

Pass::Pass(Sampler& sampler, int64_t batch_size, bool drop_last)
    : start_(sampler.start_pass()),
      indices_(sampler.indices(start_)),
      batch_size_(batch_size),
      batches_(batches_of(static_cast<int64_t>(indices_.size()), batch_size, drop_last)),
      first_padding_(static_cast<int64_t>(indices_.size()) - sampler.padding(start_)),
      used_by_all_(sampler.used_by_all(batch_size)) {
  if (program_observer)
    program_observer->pass(&sampler, indices_,
                           static_cast<int64_t>(indices_.size()) - first_padding_);
}

std::span<const int64_t> Pass::batch(int64_t k) const {
  if (k >= batches_) return {};
  const auto begin = static_cast<size_t>(k * batch_size_);
  return std::span(indices_).subspan(
      begin, std::min(indices_.size() - begin, static_cast<size_t>(batch_size_)));
}

int64_t Pass::padding(int64_t k) const {
  const int64_t begin = k * batch_size_;
  const int64_t end = begin + static_cast<int64_t>(batch(k).size());
  return std::max<int64_t>(0, end - std::max(begin, first_padding_));
}

SamplerState Pass::state_after(int64_t batches) const {
  if (batches >= batches_) return {start_.seed, start_.epoch + 1, 0};
  return {start_.seed, start_.epoch, start_.position + batches * used_by_all_};
}

}  // namespace ringgrad
