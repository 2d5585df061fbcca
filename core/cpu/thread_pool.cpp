#include "ringgrad/core/cpu/thread_pool.h"

#include <new>
#include <system_error>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad {
namespace {

thread_local bool inside_pool = false;

// Note [How a pool wakes and sleeps]
// Kernels of a small CNN take 20 to 2000 µs and follow each other at once. So a worker that has
// finished spins for a while before it sleeps on the generation counter (a futex). Leaving a spin
// costs ~0.1 µs. Waking from a futex costs ~5 µs, and the caller a system call. The spin is short
// (~20 µs) and yields in between, because ranks and logical devices may share the cores, and a
// waiting thread must give way to a computing one. Threads are not pinned to cores. On two cores
// pinning made no difference in either direction (steps of three networks, 9 rounds in turn), and
// two jobs would pin themselves to the same cores. A user who wants it calls `taskset`, whose mask
// a pool respects.
constexpr int kSpins = 2000;

inline void pause_briefly(int spin) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
  if (spin % 64 == 63) std::this_thread::yield();
}

}  // namespace

ThreadPool::~ThreadPool() {
  if (forks_ != forks) begin_anew();
  stop();
}

// Restarts in a forked child, which has copies of workers that do not run and of a mutex that
// may be locked. The copies are left as they are, because nothing can join such a thread.
void ThreadPool::begin_anew() {
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  if (forks_ == forks) return;
  new (&busy_) std::mutex;
  new (&workers_) std::vector<std::thread>;
  forks_ = forks;
}

void ThreadPool::start() {
  shares_ = std::vector<Share>(threads_);
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  try {
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([=, this] { worker(i, generation); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size();
    stop();  // a pool is complete or absent, because run() waits for all of its threads
    throw Error(str("thread pool: the system started ", started, " of ", threads_ - 1, " threads (",
                    error.what(), "); RINGGRAD_THREADS asks for fewer"));
  }
}

void ThreadPool::stop() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
  workers_.clear();
  stop_ = false;
}

void ThreadPool::worker(int index, uint32_t seen) {
  inside_pool = true;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
      pause_briefly(spin);
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    work(index);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

// A thread works through its own share first, in order, and then helps the others. So consecutive
// kernels use the same bytes on the same core, and a core that was taken away for a while does not
// delay the rest.
void ThreadPool::work(int index) {
  for (int offset = 0; offset < threads_; ++offset) {
    Share& share = shares_[(index + offset) % threads_];
    while (!failed_.load(std::memory_order_relaxed)) {
      const int64_t unit = share.next.fetch_add(1, std::memory_order_relaxed);
      if (unit >= share.end) break;
      try {
        body_(context_, unit);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
      }
    }
  }
}

void ThreadPool::run(int64_t units, void (*body)(void*, int64_t), void* context) {
  if (forks_ != forks) [[unlikely]]
    begin_anew();
  std::unique_lock lock(busy_, std::defer_lock);
  if (threads_ == 1 || units == 1 || inside_pool || !lock.try_lock()) {
    for (int64_t unit = 0; unit < units; ++unit) body(context, unit);
    return;
  }
  if (workers_.empty()) start();
  for (int i = 0; i < threads_; ++i) {
    shares_[i].next.store(units * i / threads_, std::memory_order_relaxed);
    shares_[i].end = units * (i + 1) / threads_;
  }
  body_ = body;
  context_ = context;
  failed_ = false;
  error_ = nullptr;
  unfinished_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();

  inside_pool = true;
  work(0);
  inside_pool = false;

  int left = unfinished_.load(std::memory_order_acquire);
  for (int spin = 0; spin < kSpins && left != 0; ++spin) {
    pause_briefly(spin);
    left = unfinished_.load(std::memory_order_acquire);
  }
  for (; left != 0; left = unfinished_.load(std::memory_order_acquire))
    unfinished_.wait(left, std::memory_order_acquire);
  if (failed_) std::rethrow_exception(error_);
}

int thread_count(Stream stream) { return static_cast<ThreadPool*>(stream.handle)->threads(); }

static void run_units(void* pool, int64_t units, void (*body)(void*, int64_t), void* context) {
  static_cast<ThreadPool*>(pool)->run(units, body, context);
}
BEFORE_MAIN(thread_pool,
            register_cpu_threads({[](int threads) -> void* { return new ThreadPool(threads); },
                                  run_units}));

}  // namespace ringgrad
