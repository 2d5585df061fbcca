// Makes the batches of a pass on worker threads, a bounded number in advance, and delivers them in
// order.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/data/loading/prefetch.h"

namespace ringgrad {
namespace {

class Prefetcher {
 public:
  // See Prefetch.
  Prefetcher(int64_t count, int workers, int ahead, BatchNumber make);
  ~Prefetcher();

  // Returns batch 0, then batch 1, … REQUIRES: fewer than `count` calls so far.
  Batch next();

 private:
  struct Slot {  // slots_[k % slots_.size()] holds batch k
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work(const std::stop_token& stop);

  const int64_t count_;
  const BatchNumber make_;

  // Guards the members below, except slots being made, which belong to the worker.
  std::mutex mutex_;
  std::condition_variable_any may_make_;
  std::condition_variable may_take_;
  std::vector<Slot> slots_;
  int64_t next_to_make_ = 0;
  int64_t next_to_take_ = 0;

  const int forks_ = forks;
  std::vector<std::jthread> workers_;  // last, so joined before what they use is destroyed
};

Prefetcher::Prefetcher(int64_t count, int workers, int ahead, BatchNumber make)
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

BatchNumber prefetched(int64_t count, int workers, int ahead, BatchNumber make) {
  const auto prefetcher =
      of_this_process(std::make_shared<Prefetcher>(count, workers, ahead, std::move(make)));
  return [prefetcher](int64_t) { return prefetcher->next(); };
}
BEFORE_MAIN(prefetch, prefetch = prefetched);

}  // namespace
}  // namespace ringgrad
