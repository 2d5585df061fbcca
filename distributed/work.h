// Work: a collective that was issued and may not have happened yet.
#pragma once

#include <chrono>
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
  };

  Work() = default;  // is done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // On the CPU: returns when the collective is done; its own deadline bounds the wait. On CUDA: makes the current
  // stream wait for it. Throws what has gone wrong by then.
  void wait() const {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }
  // When it was done; zero for a blocking call, and where the backend does not know. REQUIRES: done().
  Clock::time_point ended() const { return state_ ? state_->ended() : Clock::time_point(); }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ringgrad
