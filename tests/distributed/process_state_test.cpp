#include "ringgrad/distributed/os/process_state.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>
#include <thread>

#include "ringgrad/distributed/shared_memory/local_socket.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::process_state_test {

namespace {

// A process of its own that sleeps, or computes, until the test is over.
class Child {
 public:
  explicit Child(bool computes) : pid(fork()) {
    if (pid == 0)
      for (volatile bool go = computes;;)
        if (!go) pause();
  }
  ~Child() {
    if (!ended_) end();
  }
  void end() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    ended_ = true;
  }
  void becomes(std::string_view words) const {  // or the test hangs
    while (process_state(pid).words != words) std::this_thread::yield();
  }
  const pid_t pid;

 private:
  bool ended_ = false;
};

}  // namespace

TEST_CASE("what a process does is seen from outside", "[process_state][quick]") {
  Child sleeper(false);
  Child worker(true);
  sleeper.becomes("it sleeps");
  worker.becomes("it is starved: it waits for a core");
  kill(worker.pid, SIGSTOP);
  worker.becomes("it is stopped");
  kill(worker.pid, SIGCONT);
  worker.becomes("it is starved: it waits for a core");
  worker.end();
  worker.becomes("it is stopped, starved, or cut off");
  REQUIRE(process_state(0).words == std::string_view("it is stopped, starved, or cut off"));
}

TEST_CASE("a process that was forked keeps no connection open", "[process_state][quick]") {
  auto [ours, theirs] = local_socket_pair();
  theirs.keep_from_forks();
  const Child child(false);
  theirs.reset();
  pollfd ready{ours.get(), POLLIN, 0};
  REQUIRE(poll(&ready, 1, 10'000) == 1);  // the child may not have run yet
  char byte = 0;
  REQUIRE(read(ours.get(), &byte, 1) == 0);
}

TEST_CASE("two processes on one core wait for it in turn", "[process_state][quick]") {
  const Child children[] = {Child(true), Child(true)};
  cpu_set_t allowed;
  cpu_set_t one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  for (const Child& child : children) REQUIRE(sched_setaffinity(child.pid, sizeof one, &one) == 0);
  for (const Child& child : children)  // or the test hangs
    while (process_state(child.pid).without_core < std::chrono::milliseconds(30))
      std::this_thread::yield();
}

}  // namespace ringgrad::test::process_state_test
