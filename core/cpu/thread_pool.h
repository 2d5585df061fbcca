// The threads of one logical CPU device. See Note [How a pool wakes and sleeps] in thread_pool.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ringgrad/core/base/fork.h"

namespace ringgrad {

class ThreadPool {
 public:
  // `threads` counts the caller of run(), so threads - 1 are started. They start at the first
  // run().
  explicit ThreadPool(int threads) : threads_(threads) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(context, unit) once for each unit in [0, units). Rethrows the first exception.
  // Thread-safe: a second caller, or a call from inside a unit, runs its units on its own thread.
  void run(int64_t units, void (*body)(void*, int64_t), void* context);

 private:
  struct alignas(64) Share {  // the units of one thread; any thread claims them from the front
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void start();
  void stop();
  void begin_anew();
  void worker(int index, uint32_t seen);  // seen: the last finished generation
  void work(int index);

  const int threads_;
  int forks_ = forks;  // the number when the workers started
  std::mutex busy_;    // held for a whole run
  std::vector<std::thread> workers_;
  std::vector<Share> shares_;

  void (*body_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;

  // Counts the runs. Workers wait for it to change.
  alignas(64) std::atomic<uint32_t> generation_{0};
  // The number of workers still in the current run.
  alignas(64) std::atomic<int> unfinished_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace ringgrad
