// Jobs of real processes: this program starts itself again as the ranks, which then play a
// scenario.
#include "ringgrad/distributed/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <thread>
#include <utility>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/launcher/first_cause.h"
#include "ringgrad/distributed/launcher/rank_output.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/job.h"

using namespace ringgrad;

namespace {

// -- what the ranks do ----------------------------------------------------------------------------

void train(int steps, const std::function<void(int rank, int64_t step)>& before_step) {
  ProcessGroup& group = process_group();
  const Tensor gradients(group.allocate_shared(4000), {1000}, {1}, 0, DType::Float32);
  for (int64_t step = 0; step < steps; ++step) {
    set_step(step);
    set_phase(Phase::Backward);
    before_step(group.rank(), step);
    fill_(gradients, group.rank());
    const auto about = std::make_shared<const std::string>("fc.weight fc.bias");
    group
        .all_reduce(gradients, ReduceOp::Sum,
                    {.async = true, .step = step, .bucket = 1, .about = about})
        .wait();
    must(gradients.data<float>()[0] == static_cast<float>(group.size() * (group.size() - 1) / 2),
         "sum");
  }
}

void connected(const std::string& scenario) {
  const auto at = [&](int culprit, int64_t when, auto what) {
    train(1000, [=](int rank, int64_t step) {
      if (rank == culprit && step == when) what();
    });
  };
  InitOptions options;
  options.transport = contains(scenario, "tcp") ? "tcp" : "auto";
  options.timeout = std::chrono::milliseconds(contains(scenario, "slow") ? 700 : 30'000);
  init_process_group(options);
  if (contains(scenario, "train")) train(20, [](int, int64_t) {});
  if (contains(scenario, "killed")) at(1, 12, [] { raise(SIGKILL); });
  if (contains(scenario, "zero dies")) at(0, 3, [] { raise(SIGKILL); });
  if (contains(scenario, "crash")) at(1, 5, [] { raise(SIGSEGV); });
  if (contains(scenario, "exit")) at(1, 7, [] { _exit(3); });
  if (contains(scenario, "throws")) at(1, 7, [] { throw Error("bad batch"); });
  if (contains(scenario, "disk full")) at(0, 7, [] { throw IoError("no space left"); });
  if (contains(scenario, "stopped")) at(1, 9, [] { raise(SIGSTOP); });
  if (contains(scenario, "late"))
    at(1, 9, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5600)); });
  if (contains(scenario, "hangs")) at(1, 9, [] { sleep_for_ever(); });
  if (contains(scenario, "skips")) at(1, 4, [] { process_group().barrier().wait(); });
  destroy_process_group();
}

int rank_main() {
  const std::string scenario = variable("TEST_SCENARIO");
  const int rank = std::atoi(variable("RANK").c_str());
  try {
    if (scenario == "environment") {
      for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                               "MASTER_ADDR", "OMP_NUM_THREADS"})
        std::cout << name << '=' << variable(name) << '\n';
      must(std::atoi(variable("MASTER_PORT").c_str()) > 0, "port");
      must(variable("RINGGRAD_SECRET").size() == 64, "secret");
      return 0;
    }
    if (scenario == "talks late") {
      // Rank 0 has the launcher's own output, so Catch's output must not end it.
      std::cout << std::flush;
      leave_pid(rank);
      if (rank == 0) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (int i = 0; i < 100; ++i) std::cout << "is anybody there?" << std::endl;
      return 0;
    }
    if (scenario == "same code" || scenario == "one code")
      return scenario == "same code" || rank == 1 ? 4 : 0;
    if (scenario == "until interrupted") {
      signal(SIGINT, [](int) { _exit(130); });
      leave_pid(rank);
      sleep_for_ever();
    }
    if (scenario == "cannot save") {
      signal(SIGINT, [](int) {});
      leave_pid(rank);
      pause();
      if (rank == 0) throw IoError("cannot save");
      return 130;
    }
    if (scenario == "one is interrupted") return rank == 1 ? 130 : 0;
    if (scenario == "floods") {
      signal(SIGINT, [](int) { _exit(130); });
      leave_pid(rank);
      for (;;) std::cout << "y\n";
    }
    if (scenario == "hangs behind a script") {
      init_process_group();
      leave_pid(rank);
      sleep_for_ever();
    }
    if (scenario == "ignores signals") {
      for (const int ignored : {SIGINT, SIGTERM}) signal(ignored, SIG_IGN);
      leave_pid(rank);
      sleep_for_ever();
    }
    if (scenario == "launch") {
      const int code = launch([] { train(5, [](int, int64_t) {}); }, {.num_processes = 9});
      std::cout << "launch returned " << code << std::endl;
      return code;
    }
    if (scenario == "launch throws") {
      return launch([] {
        train(5, [](int r, int64_t step) {
          if (r == 1 && step == 3) throw Error("loss is NaN");
        });
      });
    }
    connected(scenario);
    return 0;
  } catch (const DistributedError& error) {
    const Failure failure = failure_of(std::current_exception());
    std::cout << error.what() << std::endl;
    return failure.kind == FailureKind::Died ? 5 : 6;
  } catch (const std::exception& error) {
    report_failure({FailureKind::Died, error.what()}, /*noticed=*/false);
    std::cout << error.what() << std::endl;
    return dynamic_cast<const IoError*>(&error) ? 8 : 1;
  }
}

// -- a launcher in a process of its own -----------------------------------------------------------

ChildProcess start_launcher(const std::string& scenario, int ranks, const Directory& directory) {
  ChildOptions options;
  options.command = {"/proc/self/exe", "a launcher of a job"};
  options.environment = {{"TEST_SCENARIO", scenario},
                         {"TEST_DIRECTORY", directory.path},
                         {"TEST_RANKS", std::to_string(ranks)}};
  return start_child(options);
}

}  // namespace

// These two are run by the others, in processes of their own; by themselves they do nothing.
TEST_CASE("a rank of a job", "[.]") {
  if (variable("RINGGRAD_STATUS_FD").empty()) return;
  const int code = rank_main();
  std::cout << std::flush;
  std::_Exit(code);
}

TEST_CASE("a launcher of a job", "[.]") {
  if (variable("TEST_RANKS").empty()) return;
  SupervisorOptions options;
  options.command = {"/proc/self/exe", "a rank of a job"};
  if (contains(variable("TEST_SCENARIO"), "script"))
    options.command = {"sh", "-c", "\"$0\" \"a rank of a job\"; true",
                       std::filesystem::read_symlink("/proc/self/exe").string()};
  options.num_processes = std::atoi(variable("TEST_RANKS").c_str());
  std::thread(sleep_for_ever).detach();  // signals may come to it
  std::cout << std::flush;               // Catch's output so far; later it may have no reader
  const JobResult result = supervise(options);
  std::cerr << result.report << std::flush;
  std::_Exit(result.exit_code);
}

TEST_CASE("a job that goes well", "[launch][quick][threads]") {
  const Directory directory;
  const std::string scenario = GENERATE("train", "train tcp");
  const JobResult result = supervise(job(scenario, 3, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.report.empty());
}

TEST_CASE("ranks get torchrun's environment", "[launch][quick][threads]") {
  const Directory directory;
  SupervisorOptions options = job("environment", 2, directory);
  options.num_machines = 3;
  options.machine_rank = 2;
  options.port = 12345;
  options.secret = std::string(64, 'x');
  options.environment["OMP_NUM_THREADS"] = "7";
  REQUIRE(supervise(options).exit_code == 0);
  const std::string log = read_file(directory.path + "/rank5.log");
  REQUIRE(contains(log,
                   "RANK=5\nWORLD_SIZE=6\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\n"
                   "OMP_NUM_THREADS=7\n"));
}

TEST_CASE("a rank that is killed is the first cause, with step and bucket",
          "[launch][quick][threads]") {
  const Directory directory;
  const std::string transport = GENERATE("", " tcp");
  const JobResult result = supervise(job("killed" + transport, 3, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 5);
  REQUIRE(result.report.rfind(
              "[rank 1] was killed by signal 9 (Killed) in backward, step 12, last bucket 1", 0) ==
          0);
  REQUIRE(contains(result.report, "stopped all 3 ranks in "));
  REQUIRE(!contains(result.report, "ranks in -"));
  for (const char* other : {"/rank0.log", "/rank2.log"}) {
    const std::string log = read_file(directory.path + other);
    CAPTURE(log);
    REQUIRE(contains(log, "rank 1 died"));
    const auto in_step = [&](int step) {
      return contains(log, str("step ", step, ", bucket 1 (fc.weight fc.bias)"));
    };
    // It may still have been on its way out of the one before.
    REQUIRE((in_step(12) || in_step(11)));
  }
}

TEST_CASE("rank 0 is no exception", "[launch][quick][threads]") {
  const Directory directory;
  const JobResult result = supervise(job("zero dies", 2, directory));
  REQUIRE(result.exit_code == 5);
  REQUIRE(contains(result.report, "[rank 0] was killed by signal 9 (Killed) in backward, step 3"));
}

TEST_CASE("a rank that ends or throws is the first cause", "[launch][quick][threads]") {
  const Directory directory;
  JobResult result = supervise(job("exit", 2, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 3);
  REQUIRE(contains(result.report, "[rank 1] ended with exit code 3 in backward, step 7"));
  result = supervise(job("throws", 2, directory));
  REQUIRE(result.exit_code == 1);
  REQUIRE(contains(result.report, "[rank 1] ended with exit code 1 in backward, step 7"));
  REQUIRE(contains(result.report, ": bad batch\n"));
}

TEST_CASE("a rank that is stopped or hangs is named at the deadline", "[launch]") {
  const Directory directory;
  const std::string transport = GENERATE("", " tcp");
  const bool stopped = GENERATE(true, false);
  const JobResult result =
      supervise(job((stopped ? "slow stopped" : "slow hangs") + transport, 3, directory));
  CAPTURE(result.report, transport, stopped);
  REQUIRE(result.exit_code == 6);
  for (const char* other : {"/rank0.log", "/rank2.log"}) {
    const std::string log = read_file(directory.path + other);
    CAPTURE(log);
    REQUIRE(contains(log, "step 9, bucket 1"));
    REQUIRE(contains(
        log, stopped ? "rank 1 does not answer: it is stopped" : "rank 1 has not come to it"));
  }
}

TEST_CASE("a rank that keeps others waiting for long is named while they wait", "[launch]") {
  const Directory directory;
  const ChildProcess launcher = start_launcher(GENERATE("late", "late tcp"), 3, directory);
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = read(launcher.error.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(n));
  CAPTURE(text);
  REQUIRE(exit_code_of(launcher) == 0);
  REQUIRE(contains(text,
                   "[rank 0] has waited 5 s in all_reduce (sum) of 1000 float32, step 9, bucket 1; "
                   "rank 1 has not come to it: it is outside of collectives, "
                   "its last one was all_reduce"));
}

TEST_CASE("a rank that is out of step ends the job at once", "[launch][quick][threads]") {
  const Directory directory;
  const std::string transport = GENERATE("", " tcp");
  const JobResult result = supervise(job("skips" + transport, 3, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 6);
  REQUIRE(contains(result.report, "ranks are out of step"));
  REQUIRE(contains(result.report, "barrier"));
}

TEST_CASE("the job ends with the first cause's own exit code", "[launch][quick][threads]") {
  const Directory directory;
  REQUIRE(supervise(job("same code", 2, directory)).exit_code == 4);
  const JobResult one = supervise(job("one code", 2, directory));
  REQUIRE(one.exit_code == 4);
  REQUIRE(contains(one.report, "[rank 1] ended with exit code 4 in start-up"));
  // The others only notice, and end with 5.
  const JobResult disk = supervise(job("disk full", 3, directory));
  CAPTURE(disk.report);
  REQUIRE(disk.exit_code == 8);
  REQUIRE(contains(disk.report, ": no space left\n"));
}

TEST_CASE("how a rank ends is known where SIGCHLD is ignored", "[launch][quick][threads]") {
  const Directory directory;
  signal(SIGCHLD, SIG_IGN);
  const JobResult result = supervise(job("same code", 2, directory));
  REQUIRE(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
  REQUIRE(result.exit_code == 4);
}

TEST_CASE("no rank outlives a launcher that is killed", "[launch][quick][threads]") {
  const Directory directory;
  const std::string scenario = GENERATE("ignores signals", "hangs behind a script");
  const ChildProcess launcher = start_launcher(scenario, 2, directory);
  const pid_t ranks[] = {await_pid(0, directory), await_pid(1, directory)};
  kill(launcher.pid, SIGKILL);
  REQUIRE(exit_code_of(launcher) == 128 + SIGKILL);
  for (const pid_t rank : ranks)
    while (!is_gone(rank)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("signals are passed on, and a later second one kills", "[launch][quick][threads]") {
  const Directory directory;
  const bool stubborn = GENERATE(false, true);
  const ChildProcess launcher =
      start_launcher(stubborn ? "ignores signals" : "until interrupted", 2, directory);
  const pid_t ranks[] = {await_pid(0, directory), await_pid(1, directory)};
  kill(launcher.pid, SIGINT);
  // Twice at once is once.
  for (const int pause : stubborn ? std::vector{50, 600} : std::vector<int>{}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    for (const pid_t rank : ranks) REQUIRE_FALSE(is_gone(rank));
    kill(launcher.pid, SIGINT);
  }
  REQUIRE(exit_code_of(launcher) == 130);
  for (const pid_t rank : ranks) REQUIRE(is_gone(rank));
}

TEST_CASE("what fails after a signal is reported", "[launch][quick][threads]") {
  const Directory directory;
  const ChildProcess launcher = start_launcher("cannot save", 2, directory);
  for (const int rank : {0, 1}) (void)await_pid(rank, directory);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // from there to pause()
  kill(launcher.pid, SIGINT);
  REQUIRE(exit_code_of(launcher) == 8);
  char text[4096] = {};
  REQUIRE(read(launcher.error.get(), text, sizeof text - 1) > 0);
  CAPTURE(text);
  REQUIRE(contains(text, ": cannot save"));
}

TEST_CASE("a rank that was interrupted and ended well interrupts the job",
          "[launch][quick][threads]") {
  const Directory directory;
  const JobResult result = supervise(job("one is interrupted", 3, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 130);
  REQUIRE(contains(result.report, "interrupted"));
}

TEST_CASE("ranks that flood their output do not make the launcher deaf",
          "[launch][quick][threads]") {
  const Directory directory;
  const bool read_on = GENERATE(true, false);
  CAPTURE(read_on);
  ChildProcess launcher = start_launcher("floods", 2, directory);
  const pid_t ranks[] = {await_pid(0, directory), await_pid(1, directory)};
  std::thread reader([&] {
    char bytes[4096];
    while (read_on && read(launcher.output.get(), bytes, sizeof bytes) > 0) {
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for a pipe to fill up
  kill(launcher.pid, SIGINT);
  REQUIRE(exit_code_of(launcher) == 130);
  reader.join();
  for (const pid_t rank : ranks) REQUIRE(is_gone(rank));
}

TEST_CASE("a reader who has gone costs the output, not the job", "[launch][quick][threads]") {
  const Directory directory;
  ChildProcess launcher = start_launcher("talks late", 2, directory);
  for (const int rank : {0, 1}) (void)await_pid(rank, directory);
  launcher.output.reset();
  REQUIRE(exit_code_of(launcher) == 0);
}

TEST_CASE("a full disk costs the output, and is named once", "[launch][quick]") {
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  OutputSink sink(full.get());
  sink.add("is anybody there?\n");
  REQUIRE(contains(sink.write_some(), str("/dev/fd/", full.get(), " is lost: No space left")));
  REQUIRE(sink.empty());
  sink.add("and now?\n");
  REQUIRE(sink.write_some().empty());
  REQUIRE(sink.empty());

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "one\ntwo\n", 8) == 8);
  const FileDescriptor writing(ends[1]);
  int lines[2];
  REQUIRE(pipe(lines) == 0);
  const FileDescriptor reading(lines[0]);
  const FileDescriptor terminal(lines[1]);
  OutputSink said(terminal.get());
  RankOutput output(FileDescriptor{ends[0]}, said, "[rank 1] ", full.get());
  REQUIRE(output.forward());
  REQUIRE(write(ends[1], "three\n", 6) == 6);
  REQUIRE(output.forward());
  while (!said.empty()) REQUIRE(said.write_some().empty());
  char text[400] = {};
  REQUIRE(read(reading.get(), text, sizeof text - 1) > 0);
  REQUIRE(std::string(text) ==
          "[rank 1] the log ends here: No space left on device\n"
          "[rank 1] one\n[rank 1] two\n[rank 1] three\n");
}

TEST_CASE("output for a reader who has gone is dropped without a word", "[launch][quick]") {
  const auto before = signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  OutputSink sink(writing.get());
  reading.reset();
  sink.add("is anybody there?\n");
  REQUIRE(sink.write_some().empty());
  REQUIRE(sink.empty());
  signal(SIGPIPE, before);
}

TEST_CASE("a program that does not exist is named", "[launch][quick][threads]") {
  const Directory directory;
  SupervisorOptions options = job("", 2, directory);
  options.command = {"/no/such/program"};
  try {
    (void)supervise(options);
    FAIL("started");
  } catch (const ExecuteError& error) {
    REQUIRE(contains(error.what(), "cannot execute '/no/such/program': No such file or directory"));
  }
}

TEST_CASE("launch calls the function on every rank", "[launch][quick][threads]") {
  const Directory directory;
  REQUIRE(supervise(job("launch", 2, directory)).exit_code == 0);
  REQUIRE(read_file(directory.path + "/rank1.log").find("launch returned 0") != std::string::npos);
  const JobResult result = supervise(job("launch throws", 2, directory));
  CAPTURE(result.report);
  REQUIRE(result.exit_code == 1);
  REQUIRE(contains(result.report, "[rank 1] ended with exit code 1 in backward, step 3"));
  REQUIRE(contains(result.report, "loss is NaN"));
  for (const char* log : {"/rank0.log", "/rank1.log"})  // the launcher says it once for all of them
    REQUIRE(!contains(read_file(directory.path + log), "loss is NaN"));
}

TEST_CASE("launch refuses what cannot be", "[launch][quick][threads]") {
  const auto nothing = [] {};
  REQUIRE_THROWS_WITH(launch_or_throw(nothing, {.num_processes = 2, .num_machines = 2}),
                      "launch: a job on 2 machines needs a place where they meet: "
                      "dist_url tcp://HOST:PORT of machine 0");
  REQUIRE_THROWS_AS(launch_or_throw(nothing, {.num_processes = 2, .dist_url = "udp://x:1"}), Error);
  for (const char* url :
       {"tcp://x:port", "tcp://x:12a", "tcp://x:65535", "tcp://:1", "tcp://::1:29400", "tcp://x:"})
    try {
      launch_or_throw(nothing, {.num_processes = 2, .dist_url = url});
      FAIL(url);
    } catch (const Error& error) {
      REQUIRE(contains(error.what(), "expected auto"));
    }
  const Networks* const before = std::exchange(networks, nullptr);  // as in the book's program
  std::string error;
  try {
    launch_or_throw(nothing, {.num_processes = 2, .dist_url = "tcp://127.0.0.1:29400"});
  } catch (const Error& refused) {
    error = refused.what();
  }
  networks = before;
  REQUIRE(error == "launch: dist_url needs more than the book; link all of ringgrad::ringgrad");
}
