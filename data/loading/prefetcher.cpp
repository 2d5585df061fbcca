#include "ringgrad/data/loading/prefetcher.h"

#include <algorithm>
#include <utility>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Prefetcher::Prefetcher(int64_t count, int workers, int ahead, std::function<Batch(int64_t)> make)
    : count_(count), make_(std::move(make)), slots_(static_cast<size_t>(std::max(ahead, workers))) {
  const int64_t useful = std::min<int64_t>(workers, count);
  for (int64_t i = 0; i < useful; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

Prefetcher::~Prefetcher() {
  // All workers are told to stop before the first is waited for.
  for (auto& worker : workers_) worker.request_stop();
}

void Prefetcher::work(const std::stop_token& stop) {
  const auto capacity = static_cast<int64_t>(slots_.size());
  std::unique_lock lock(mutex_);
  for (;;) {
    // Slot k is free again once batch k - capacity has been taken.
    may_make_.wait(lock, stop, [&] {
      return next_to_make_ == count_ || next_to_make_ < next_to_take_ + capacity;
    });
    if (stop.stop_requested() || next_to_make_ == count_) return;
    const int64_t k = next_to_make_++;
    Slot& slot = slots_[k % capacity];
    lock.unlock();
    try {
      slot.batch = make_(k);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    if (k == next_to_take_) may_take_.notify_one();
  }
}

Batch Prefetcher::next() {
  ASSERT(next_to_take_ < count_);
  if (workers_.empty()) return make_(next_to_take_++);
  CHECK(forks_ == forks,
        "data_loader: this process was forked in the middle of a pass, "
        "whose threads the parent alone ",
        "has; begin another pass here");
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[next_to_take_ % slots_.size()];
  may_take_.wait(lock, [&] { return slot.ready; });
  ++next_to_take_;
  Slot taken = std::exchange(slot, {});
  lock.unlock();
  may_make_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

}  // namespace ringgrad
