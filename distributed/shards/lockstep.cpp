#include "ringgrad/distributed/shards/lockstep.h"

#include <thread>
#include <utility>

#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

Lockstep::Lockstep(int members, std::function<void(int member)> begin_turn)
    : members_(members), begin_turn_(std::move(begin_turn)), ended_(static_cast<size_t>(members)) {}

void Lockstep::wait_for_turn(int member) {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return turn_ == member; });
  lock.unlock();
  begin_turn_(member);
}

// Passes the turn to the next member that has not ended, if there is one.
void Lockstep::pass_turn() {
  int next = turn_;
  for (int i = 0; i < members_; ++i) {
    next = (next + 1) % members_;
    if (!ended_[next]) break;
  }
  {
    std::lock_guard lock(mutex_);
    turn_ = next;
  }
  passed_.notify_all();
}

void Lockstep::check_equally_often() {
  if (error_ || num_ended_ == 0 || arrived_ == 0 || arrived_ + num_ended_ < members_) return;
  error_ =
      std::make_exception_ptr(Error(str("lockstep: ", num_ended_, " of ", members_,
                                        " shards have ended where the others exchange statistics; "
                                        "all shards must come by the same layers")));
}

void Lockstep::run(const std::function<void(int member)>& body) {
  const ThreadModes modes;
  const auto play = [&](int member) {
    const ThreadModes::Scope scope(modes);
    try {
      wait_for_turn(member);
      if (!error_) body(member);
    } catch (const Stopped&) {
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    ended_[member] = true;
    ++num_ended_;
    check_equally_often();
    pass_turn();
  };
  {
    std::vector<std::jthread> threads;  // joined when they go
    try {
      for (int m = 1; m < members_; ++m) threads.emplace_back(play, m);
    } catch (...) {  // the system has no more threads: those that have started end at once
      error_ = std::current_exception();
      for (int m = static_cast<int>(threads.size()) + 1; m < members_; ++m) ended_[m] = true;
    }
    play(0);
  }
  if (error_) std::rethrow_exception(error_);
}

void Lockstep::meet(const std::function<void()>& together) {
  const int member = turn_;
  ++arrived_;
  check_equally_often();
  if (!error_ && arrived_ == members_) {
    arrived_ = 0;
    together();
  }
  pass_turn();
  wait_for_turn(member);
  if (error_) throw Stopped();
}

}  // namespace ringgrad
