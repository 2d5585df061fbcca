// Work: a collective that was issued and may not have happened yet.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>

namespace ringgrad {

class Work {
 public:
  using Clock = std::chrono::steady_clock;

  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() const = 0;
    virtual Clock::time_point ended() const = 0;
    virtual int source() const { return -1; }
  };

  Work() = default;  // is done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // On the CPU: returns when the collective is done; its own deadline bounds the wait. On CUDA:
  // makes the current stream wait for it. Throws the error that has occurred by then, if any.
  void wait() const {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }
  // Returns the time at which it was done. Returns zero for a blocking collective, and if the
  // backend does not know. REQUIRES: done().
  Clock::time_point ended() const { return state_ ? state_->ended() : Clock::time_point(); }

  // The rank from which a receive came. REQUIRES: done(). -1 for all else.
  int source() const { return state_ ? state_->source() : -1; }

 private:
  std::shared_ptr<State> state_;
};

// Work that a thread of its group does: end() is called there, once, everything else from any
// thread.
class PendingWork : public Work::State {
 public:
  void end(std::exception_ptr error) {
    ended_ = Work::Clock::now();
    error_ = error;
    done_.store(true);
    done_.notify_all();
  }
  void wait() override {
    done_.wait(false);
    if (error_) std::rethrow_exception(error_);
  }
  bool done() const override { return done_.load(); }
  Work::Clock::time_point ended() const override { return ended_; }

 private:
  std::atomic<bool> done_ = false;
  std::exception_ptr error_;
  Work::Clock::time_point ended_;
};

}  // namespace ringgrad
