// Lockstep: several functions of one process that take turns, so that each can wait for the results
// of the others.
//
// A rank computes its shards one after the other, but batch norm over all shards needs every
// shard's statistics before any shard goes on. So each shard runs on a thread of its own, one at a
// time. A thread runs until it needs the others' numbers, and then passes its turn on. Between two
// such points the shards run in their order, as without threads. Nothing runs at the same time, so
// they may use the same parameters, generator and process group.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace ringgrad {

class Lockstep {
 public:
  // begin_turn(m) is called whenever member m's turn begins.
  Lockstep(int members, std::function<void(int member)> begin_turn);

  // Runs body(0) … body(members - 1), the first on this thread. After all have ended, throws the
  // first error of any, and Error if they did not meet equally often.
  void run(const std::function<void(int member)>& body);

  // In a body: waits until all members have come; the last one calls `together` before any goes on.
  void meet(const std::function<void()>& together);

  int member() const { return turn_; }  // whose turn it is; in a body, its own

 private:
  struct Stopped {};  // ends a body when another one has failed

  void wait_for_turn(int member);
  void pass_turn();
  void check_equally_often();

  const int members_;
  const std::function<void(int member)> begin_turn_;
  std::mutex mutex_;
  std::condition_variable passed_;
  int turn_ = 0;

  // Used by whose turn it is.
  std::vector<bool> ended_;
  int num_ended_ = 0;
  int arrived_ = 0;
  std::exception_ptr error_;
};

}  // namespace ringgrad
