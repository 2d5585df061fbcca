#include "ringgrad/core/base/fork.h"

#include <pthread.h>

#include <vector>

#include "ringgrad/core/base/before_main.h"

namespace ringgrad {
namespace {

struct Held {
  std::mutex adding;
  std::vector<std::mutex*> mutexes;
};
Held& held() {
  static Held& held = *new Held;  // never destroyed: a program may fork while it ends
  return held;
}

void before_fork() {
  held().adding.lock();
  for (std::mutex* mutex : held().mutexes) mutex->lock();
}

void after_fork() {
  for (auto mutex = held().mutexes.rbegin(); mutex != held().mutexes.rend(); ++mutex)
    (*mutex)->unlock();
  held().adding.unlock();
}

void in_child() {
  ++forks;
  after_fork();
}

BEFORE_MAIN(fork, pthread_atfork(before_fork, after_fork, in_child));

}  // namespace

void hold_over_fork(std::mutex& mutex) {
  std::lock_guard lock(held().adding);
  held().mutexes.push_back(&mutex);
}

}  // namespace ringgrad
