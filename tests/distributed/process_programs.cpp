// Programs that use the library in unusual states of a process: before main, after fork(), in a
// loop of launches, within a rank. process_test.py runs them: process_programs SCENARIO
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <ringgrad/ringgrad.h>

#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/os/shared_memory.h"

using namespace ringgrad;

namespace {

// This runs before main, and before the library's own initialisers, because the linker puts a
// program's files first.
const Tensor kMean = tensor<float>({0.485f, 0.456f, 0.406f}, {3, 1, 1}).mean();
nn::Sequential network(nn::Conv2d(3, 2, 3), nn::BatchNorm2d(2), nn::Linear(4, 2));
const Tensor kOutput = network(randn({2, 3, 6, 6}));
const Tensor kGradient = [] {
  const Tensor x = ones({2, 2}).requires_grad_();
  matmul(x, x).sum().backward();
  return x.grad();
}();

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

void attempt(const char* what, const std::function<void()>& f) {
  try {
    f();
    say(str("child: ", what, " ok"));
  } catch (const std::exception& error) {
    say(str("child: ", what, ": ", error.what()));
  }
}

void compute() {
  const Tensor x = ones({300, 300}).requires_grad_();
  matmul(x, x).sum().backward();
  if (x.grad().data<float>()[0] != 600) throw Error("wrong gradient");
  (void)randn({1000});
}

// Reports how a child has ended. Kills a child that hangs.
void await(pid_t child) {
  int status = 0;
  for (int i = 0; i < 400; ++i) {
    if (waitpid(child, &status, WNOHANG) == child)
      return say(str("parent: child ended with ", status));
    usleep(50'000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  say("parent: child hangs");
}

// Takes the locks that guard what all wrappers, optimizers and groups of a process share.
void share() {
  const Tensor weight = ones({1}).requires_grad_();
  const SoleAverager averager("test", {{"weight", weight}});
  (void)optim::sharing_optimizers("test", {weight});
  (void)SharedMemory::create(1);
  report_waiting("waits for nobody");
}

void fork_and_compute() {
  compute();
  share();
  std::vector<Tensor> samples(64, ones({2}));
  const auto sampler = std::make_shared<SequentialSampler>(64);
  DataLoader loader([](std::span<const int64_t>, int64_t) { return Batch{.data = ones({2})}; },
                    sampler, {.batch_size = 1, .num_workers = 2});
  auto pass = loader.begin();
  std::atomic<bool> stop = false;
  std::thread busy([&] {  // holds locks of the allocator and of the pool now and then
    while (!stop) compute();
  });
  std::thread sharing([&] {
    while (!stop) share();
  });
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      attempt("compute", compute);
      attempt("share", share);
      attempt("data", [&] {
        for (; pass != std::default_sentinel; ++pass) {
        }
      });
      attempt("data anew", [&] {
        for (const Batch& batch : loader) (void)batch;
      });
      std::fflush(stderr);
      _exit(0);
    }
    await(child);
  }
  stop = true;
  busy.join();
  sharing.join();
}

void fork_in_rank() {
  ProcessGroup& group = process_group();
  const Tensor x = ones({1000});
  const pid_t child = fork();
  if (child == 0) {
    attempt("compute", compute);
    attempt("all_reduce", [&] { group.all_reduce(x).wait(); });
    attempt("send", [&] { group.send(x, 1 - group.rank()).wait(); });
    attempt("split", [&] { group.split(0); });
    attempt("allocate_shared", [&] { group.allocate_shared(100); });
    attempt("process_group", [] { process_group(); });
    attempt("init", [] { init_process_group(); });
    return;  // and so destroys what it has copies of
  }
  await(child);
  group.all_reduce(x).wait();
  say(str("rank ", group.rank(), ": sum ", x.data<float>()[999]));
}

// Rank 0's parameters are under way when it forks, since rank 1 steps later.
void fork_in_step() {
  ProcessGroup& group = process_group();
  nn::Linear net(4, 4);
  DistributedDataParallel ddp(net, group, {.zero = 1});
  ShardedOptimizer<optim::SGD> optimizer(ddp, ddp.named_parameters(), optim::SGDOptions{.lr = 0.1});
  const Tensor token = ones({1});
  optimizer.zero_grad();
  ddp(ones({2, 4})).sum().backward();
  if (group.rank() == 1) group.recv(token, 0).wait();
  optimizer.step();
  if (group.rank() == 0) {
    const pid_t child = fork();
    if (child == 0) {
      attempt("parameter", [&] { (void)net.parameters()[0].sum().item<float>(); });
      return;
    }
    await(child);
    group.send(token, 1).wait();
  }
  ddp.check_identical();
  say(str("rank ", group.rank(), ": stepped"));
}

void die_with_child() {
  ProcessGroup& group = process_group();
  const Tensor x = ones({10});
  group.all_reduce(x).wait();
  if (group.rank() == 1) {
    if (fork() == 0) {
      sleep(20);
      _exit(0);
    }
    raise(SIGKILL);
  }
  try {
    group.all_reduce(x).wait();
  } catch (const DistributedError& error) {
    say(error.what());
    throw;
  }
}

int launch_in_a_loop(const char* program) {
  say(str("main of ", program));
  for (int job = 0; job < 3; ++job) {
    const int code = launch(
        [&] {
          const Tensor x = full({2}, job);
          process_group().all_reduce(x).wait();
          say(str("job ", job, " of ", program, ": ", x.data<float>()[0]));
          if (job == 1 && process_group().rank() == 1) throw Error("job 1 fails");
        },
        {.num_processes = 2});
    if (const char* file = std::getenv("CODES"))
      std::ofstream(file, std::ios::app) << getpid() << ' ' << code << '\n';
  }
  say("end of main");
  return 0;
}

int launch_within(const std::string& program, bool inner) {
  if (inner) {
    const int code =
        launch([] { say(str("inner rank ", process_group().rank())); }, {.num_processes = 2});
    say("end of inner main");
    return code;
  }
  // A call before the one whose rank starts a program.
  if (const int code = launch([] {}, {.num_processes = 2})) return code;
  return launch(
      [&] {
        if (process_group().rank() == 0) {
          say(str("code ", WEXITSTATUS(std::system((program + " inner").c_str()))));
          const std::string clean = "env -u RANK -u WORLD_SIZE -u LOCAL_RANK -u LOCAL_WORLD_SIZE ";
          say(str("code ", WEXITSTATUS(std::system((clean + program + " inner").c_str()))));
        }
        process_group().barrier().wait();
      },
      {.num_processes = 2});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  if (scenario == "globals") {
    std::printf("%.4f %d %g\n", kMean.item<float>(), kOutput.dim(), kGradient.data<float>()[0]);
    return 0;
  }
  if (scenario == "fork") return fork_and_compute(), 0;
  if (scenario == "fork-in-rank") return launch(fork_in_rank, {.num_processes = 2});
  if (scenario == "fork-in-step") return launch(fork_in_step, {.num_processes = 2});
  if (scenario == "die")
    return launch(die_with_child,
                  {.num_processes = 2, .group = {.transport = argc > 2 ? argv[2] : "auto"}});
  if (scenario == "loop") return launch_in_a_loop(argv[0]);
  if (scenario == "outer" || scenario == "inner")
    return launch_within(argv[0], scenario == "inner");
  return 2;
}
