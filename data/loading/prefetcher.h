// Makes the batches of a pass on worker threads, a bounded number in advance, and delivers them in
// order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ringgrad/core/base/fork.h"
#include "ringgrad/data/batch_source.h"

namespace ringgrad {

class Prefetcher {
 public:
  // Batch k of `count` is make(k). It is called on one of `workers` threads, for several k at once;
  // with 0 workers next() calls it on the caller's thread. At most `ahead` batches that next() has
  // not returned yet are made or being made. REQUIRES: ahead >= 1.
  Prefetcher(int64_t count, int workers, int ahead, std::function<Batch(int64_t k)> make);
  // May be destroyed at any time. Batches being made are finished and discarded; the others are
  // never begun.
  ~Prefetcher();

  // Returns batch 0, then batch 1, … If make(k) threw, the exception is rethrown at batch k. Throws
  // Error in a forked child, which lacks the threads. REQUIRES: fewer than `count` calls so far.
  Batch next();

 private:
  struct Slot {  // slots_[k % slots_.size()] holds batch k
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work(const std::stop_token& stop);

  const int64_t count_;
  const std::function<Batch(int64_t)> make_;

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

}  // namespace ringgrad
