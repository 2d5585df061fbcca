// LoadingLog: records when the loader's threads have made batches, for a trace. While it is on,
// each batch costs two looks at the clock.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ringgrad/data/data_loader.h"

namespace ringgrad::program {

// Thread-safe.
class LoadingLog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Made {  // a batch
    Clock::time_point begin;
    Clock::time_point end;
  };

  void set_on(bool on) { on_ = on; }
  // Returns the batches made since the last call, by thread; those of one thread follow each other.
  std::vector<std::vector<Made>> take() {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<Made>> all;
    for (auto& [thread, made] : made_) all.push_back(std::move(made));
    made_.clear();
    return all;
  }

  // Returns a function that makes the same batches, and records them here.
  static MakeBatch watched(MakeBatch make, std::shared_ptr<LoadingLog> log) {
    return [make = std::move(make), log = std::move(log)](std::span<const int64_t> indices,
                                                          int64_t epoch) {
      if (!log->on_) return make(indices, epoch);
      const auto begin = Clock::now();
      Batch batch = make(indices, epoch);
      const std::lock_guard lock(log->mutex_);
      log->made_[std::this_thread::get_id()].push_back({begin, Clock::now()});
      return batch;
    };
  }

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;  // guards the members below
  std::map<std::thread::id, std::vector<Made>> made_;
};

}  // namespace ringgrad::program
