// Faults of a job's processes. Every fault must end, within a second or at the deadline, in a
// report that names the culprit and never a victim. It must leave neither a process nor shared
// memory behind.
#include <sys/socket.h>

#include <atomic>
#include <iostream>
#include <set>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/launcher/first_cause.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/job.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad::test::faults_test {

namespace {

using std::chrono::milliseconds;

// -- what the ranks do: a training loop, with an accident in one of its phases --------------------

const char* const kPlaces[] = {
    "rendezvous",      "parameters", "forward",    "backward",   "between buckets",
    "inside a bucket", "optimizer",  "evaluation", "checkpoint", "end"};

class Accident {
 public:
  Accident()
      : place_(variable("TEST_PLACE")), mine_(variable("RANK") == variable("TEST_CULPRIT")) {}

  bool at(const std::string& place) const { return mine_ && place == place_; }
  void may_happen(const std::string& place) const {
    if (at(place)) happen();
  }
  // Lets it happen while this rank does something else.
  std::thread soon(const std::string& place, milliseconds delay) const {
    if (!at(place)) return {};
    return std::thread([delay] {
      std::this_thread::sleep_for(delay);
      happen();
    });
  }

 private:
  static void happen() {
    const std::string kind = variable("TEST_SCENARIO");
    if (kind == "killed") raise(SIGKILL);
    if (kind == "exits") std::_Exit(3);
    if (kind == "leaves") std::exit(3);
    if (kind == "aborts") std::abort();
    if (kind == "hangs") sleep_for_ever();
    if (kind == "stops") kill(getpid(), SIGSTOP);
    if (kind == "throws") throw Error("bad batch");
    if (kind == "starves") compute_with_a_quarter_of_a_core();
  }

  static void compute_with_a_quarter_of_a_core() {
    cpu_set_t all;
    cpu_set_t one;
    sched_getaffinity(0, sizeof all, &all);
    int core = 0;
    while (!CPU_ISSET(core, &all)) ++core;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);  // and so on those that it starts
    std::vector<std::jthread> others;
    for (int i = 0; i < 3; ++i)
      others.emplace_back([](std::stop_token over) {
        while (!over.stop_requested()) continue;
      });
    const auto computed = [] {
      timespec time;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    for (const double begin = computed(); computed() < begin + 0.3;) continue;
    sched_setaffinity(0, sizeof all, &all);
  }

  std::string place_;
  bool mine_;
};

void train(const Accident& accident) {
  if (accident.at("rendezvous")) {
    set_phase(Phase::Rendezvous);
    std::this_thread::sleep_for(milliseconds(30));  // the others wait for it there
    accident.may_happen("rendezvous");
  }
  InitOptions options;
  options.transport = variable("TEST_TRANSPORT");
  init_process_group(options);
  ProcessGroup& group = process_group();

  const Tensor parameters = ones({1 << 16});
  accident.may_happen("parameters");
  group.broadcast(parameters, 0).wait();
  const Tensor first = zeros({1 << 16});
  const Tensor second(group.allocate_shared(16 << 20), {4 << 20}, {1}, 0, DType::Float32);
  for (int64_t step = 0; step < 5; ++step) {
    if (step == 3 && accident.at("backward") && variable("TEST_SCENARIO") == "skips") continue;
    set_step(step);
    const auto now = [&](const char* place) {
      if (step == 3) accident.may_happen(place);
    };
    set_phase(Phase::Forward);
    now("forward");
    set_phase(Phase::Backward);
    now("backward");
    fill_(first, 1);
    fill_(second, 1);
    // With ZeRO the halves of an all-reduce, the second one after the optimizer's step.
    const bool halves = !variable("TEST_HALVES").empty();
    const auto average = [&](const Tensor& x, int bucket) {
      const CollectiveOptions of_bucket = {.async = true, .step = step, .bucket = bucket};
      return halves ? group.reduce_slices(x, ReduceOp::Average, of_bucket)
                    : group.all_reduce(x, ReduceOp::Average, of_bucket);
    };
    Work one = average(first, 0);
    now("between buckets");
    std::thread timer;
    if (step == 3) timer = accident.soon("inside a bucket", milliseconds(3));
    Work two = average(second, 1);
    one.wait();
    two.wait();
    if (timer.joinable()) timer.join();
    set_phase(Phase::Optimizer);
    now("optimizer");
    for (const Tensor& x : {first, second})
      if (halves) group.gather_slices(x, {.step = step}).wait();
    must(first.data<float>()[77] == 1 && second.data<float>()[77] == 1, "average");
  }
  set_phase(Phase::Evaluation);
  accident.may_happen("evaluation");
  group.all_reduce(first).wait();
  set_phase(Phase::Checkpoint);
  accident.may_happen("checkpoint");
  group.barrier().wait();
  set_phase(Phase::Finished);
  accident.may_happen("end");
  group.barrier().wait();
  destroy_process_group();
}

int rank_main() {
  // This runs when later objects are destroyed, as the group's own thread may.
  if (variable("TEST_SCENARIO") == "leaves") std::atexit([] { set_phase(Phase::Finished); });
  try {
    train(Accident());
    return 0;
  } catch (const DistributedError& error) {
    std::cout << error.what() << std::endl;
    return failure_of(std::current_exception()).kind == FailureKind::Died ? 5 : 6;
  } catch (const std::exception& error) {
    report_failure({FailureKind::Died, error.what()}, /*noticed=*/false);
    std::cout << error.what() << std::endl;
    return 1;
  }
}

// -- what is left ---------------------------------------------------------------------------------

std::set<std::string> shared_memory() {  // by name; ours has none
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (contains(entry.path().filename(), "ringgrad")) names.insert(entry.path().filename());
  return names;
}

// Returns the processes whose environment names the test's directory, except this one.
std::vector<pid_t> pids_of(const Directory& directory) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    if (pid != getpid() && contains(read_file(entry.path() / "environ"), directory.path) &&
        !is_gone(pid))
      pids.push_back(pid);
  }
  return pids;
}

JobResult run(const std::string& kind, const std::string& place, int culprit, int ranks,
              const std::string& transport, const Directory& directory, const char* timeout = "20",
              bool halves = false) {
  setenv("TEST_PLACE", place.c_str(), 1);
  setenv("TEST_HALVES", halves ? "yes" : "", 1);
  setenv("TEST_CULPRIT", std::to_string(culprit).c_str(), 1);
  setenv("TEST_TRANSPORT", transport.c_str(), 1);
  setenv("RINGGRAD_TIMEOUT", timeout, 1);
  const JobResult result = supervise(job(kind, ranks, directory));
  REQUIRE(pids_of(directory).empty());
  REQUIRE(shared_memory().empty());
  return result;
}

// From the accident to the end of the last rank, as the report says.
double seconds_to_stop(const std::string& report) {
  const std::string before = " ranks in ";
  const size_t at = report.find(before);
  REQUIRE(at != std::string::npos);
  return std::stod(report.substr(at + before.size()));
}

std::string phase_of(const std::string& place) {
  if (place == "rendezvous") return "the rendezvous";
  if (place == "parameters") return "set-up";
  if (place == "between buckets" || place == "inside a bucket") return "backward";
  if (place == "optimizer") return "the optimizer";
  if (place == "checkpoint") return "a checkpoint";
  if (place == "end") return "the end";
  return place;
}

// Ranks that start as with torchrun or Slurm, without our launcher.
class LooseRanks {
 public:
  LooseRanks(const std::string& kind, const std::string& place, int culprit, int started, int size,
             const Directory& directory) {
    FileDescriptor port = bind_tcp({"127.0.0.1", 0});
    ports.push_back(std::move(port));
    for (int r = 0; r < started; ++r) {
      ChildOptions options;
      options.command = {"/proc/self/exe", "a rank of a job"};
      options.environment = {{"TEST_SCENARIO", kind},
                             {"TEST_PLACE", place},
                             {"TEST_CULPRIT", std::to_string(culprit)},
                             {"TEST_TRANSPORT", "tcp"},
                             {"TEST_DIRECTORY", directory.path},
                             {"RANK", std::to_string(r)},
                             {"WORLD_SIZE", std::to_string(size)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(local_address(ports[0]).port)},
                             {"RINGGRAD_SECRET", "only this test knows it"},
                             {"RINGGRAD_TIMEOUT", "1"}};
      ranks.push_back(start_child(options));
    }
  }
  ~LooseRanks() {
    for (const ChildProcess& rank : ranks) kill(rank.pid, SIGKILL);
  }
  // Returns its exit code, and its output.
  std::pair<int, std::string> end(int rank) {
    std::string text;
    char bytes[4096];
    for (ssize_t n; (n = read(ranks[rank].output.get(), bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<size_t>(n));
    return {exit_code_of(ranks[rank]), text};
  }

  std::vector<FileDescriptor> ports;
  std::vector<ChildProcess> ranks;
};

}  // namespace

TEST_CASE("a rank of a job", "[.]") {
  if (variable("RANK").empty()) return;
  const int code = rank_main();
  std::cout << std::flush;
  std::_Exit(code);
}

TEST_CASE("a rank that is killed, in ten phases", "[faults]") {
  const Directory directory;
  const std::string transport = GENERATE(from_range(channel_names()));
  const int ranks = GENERATE(2, 4);
  const bool first = GENERATE(true, false);
  const bool halves = GENERATE(false, true);
  const int culprit = first ? 0 : ranks - 1;
  for (const std::string place : kPlaces) {
    const JobResult outcome =
        run("killed", place, culprit, ranks, transport, directory, "20", halves);
    CAPTURE(place, outcome.report, transport);
    REQUIRE(outcome.exit_code == 5);
    const std::string who = "[rank " + std::to_string(culprit) +
                            "] was killed by signal 9 (Killed) in " + phase_of(place);
    REQUIRE(outcome.report.rfind(who, 0) == 0);
    if (place == "forward" || place == "backward" || contains(place, "bucket"))
      REQUIRE(contains(outcome.report,
                       ", step 3, last bucket " +
                           std::string(place == "forward" || place == "backward" ? "1" : "")));
    REQUIRE(seconds_to_stop(outcome.report) < 15);  // the timeout is 20
  }
}

TEST_CASE("a rank that throws, exits or aborts is named with its words", "[faults]") {
  const Directory directory;
  const int culprit = GENERATE(0, 2);
  const std::string place = GENERATE("parameters", "backward", "between buckets", "evaluation");
  const std::string who = "[rank " + std::to_string(culprit) + "] ";
  JobResult outcome = run("throws", place, culprit, 3, "auto", directory);
  CAPTURE(place, outcome.report);
  REQUIRE(outcome.exit_code == 1);  // its own
  REQUIRE(outcome.report.rfind(who + "ended with exit code 1 in " + phase_of(place), 0) == 0);
  REQUIRE(contains(outcome.report, "bad batch"));
  outcome = run("exits", place, culprit, 3, "auto", directory);
  REQUIRE(outcome.report.rfind(who + "ended with exit code 3 in " + phase_of(place), 0) == 0);
  outcome = run("aborts", place, culprit, 3, "auto", directory);
  REQUIRE(outcome.report.rfind(who + "was killed by signal 6 (Aborted) in " + phase_of(place), 0) ==
          0);
}

TEST_CASE("a rank may call exit() with collectives under way", "[faults]") {
  const Directory directory;
  const JobResult outcome = run("leaves", "between buckets", 1, 2, "auto", directory);
  CAPTURE(outcome.report);
  REQUIRE(outcome.report.rfind("[rank 1] ended with exit code 3", 0) == 0);
}

TEST_CASE("a rank that is stopped is noted at once, named at the deadline, and may go on before",
          "[faults]") {
  const Directory directory;
  const std::string transport = GENERATE(from_range(channel_names()));
  const bool halves = GENERATE(false, true);
  const JobResult outcome = run("stops", "backward", 1, 3, transport, directory, "0.7", halves);
  CAPTURE(outcome.report);
  REQUIRE(outcome.exit_code == 6);
  REQUIRE(contains(outcome.report, "rank 1 does not answer: it is stopped"));

  // SIGCONT is sent again and again, because it is unknown when a process on a busy machine stops.
  std::jthread goes_on([&](std::stop_token over) {
    while (!over.stop_requested()) {
      std::this_thread::sleep_for(milliseconds(500));
      for (const pid_t pid : pids_of(directory)) kill(pid, SIGCONT);
    }
  });
  const JobResult good = run("stops", "backward", 1, 3, transport, directory, "10", halves);
  goes_on.request_stop();
  CAPTURE(good.report);
  REQUIRE(good.exit_code == 0);
}

TEST_CASE("a rank that has no core most of the time is waited for beyond the deadline",
          "[faults]") {
  const Directory directory;
  const JobResult outcome = run("starves", "backward", 1, 2, "auto", directory, "1");
  CAPTURE(outcome.report);
  REQUIRE(outcome.exit_code == 0);
}

TEST_CASE("without a launcher a rank that hangs is named by the others at the deadline",
          "[faults]") {
  const Directory directory;
  LooseRanks job("hangs", "backward", 1, 3, 3, directory);
  for (const int rank : {0, 2}) {
    const auto [code, text] = job.end(rank);
    CAPTURE(rank, text);
    REQUIRE(code == 6);
    REQUIRE(contains(text,
                     "all_reduce (average) of 65536 float32, step 3, bucket 0: "
                     "nothing moved for 1.001 s; rank 1 "));
  }
}

TEST_CASE("without a launcher a rank that is killed is named by the others at once", "[faults]") {
  const Directory directory;
  const std::string place = GENERATE("backward", "inside a bucket", "evaluation");
  LooseRanks job("killed", place, 1, 3, 3, directory);
  for (const int rank : {0, 2}) {
    const auto [code, text] = job.end(rank);
    CAPTURE(place, rank, text);
    REQUIRE(code == 5);
    REQUIRE((contains(text, "rank 1 died: its connection to rank ") ||
             contains(text, " and 1 broke") || contains(text, "between ranks 1 and ")));
  }
}

TEST_CASE("a rank that never comes is named", "[faults]") {
  const Directory directory;
  LooseRanks job("", "", 0, 2, 4, directory);
  for (const int rank : {0, 1}) {
    const auto [code, text] = job.end(rank);
    CAPTURE(rank, text);
    REQUIRE(code == 6);
    REQUIRE(contains(text, "ranks 2, 3 of 4 have not joined"));
  }
}

TEST_CASE("a rank that skips a step is out of step, and both sides are named", "[faults]") {
  const Directory directory;
  const std::string transport = GENERATE(from_range(channel_names()));
  const JobResult outcome = run("skips", "backward", 1, 2, transport, directory);
  CAPTURE(outcome.report);
  REQUIRE(outcome.exit_code == 6);
  REQUIRE(contains(outcome.report, "ranks are out of step"));
  REQUIRE(contains(outcome.report, "step 3, bucket 0"));
  REQUIRE(contains(outcome.report, "step 4, bucket 0"));
}

TEST_CASE("strangers at the port neither join nor hold up a job", "[faults]") {
  const Directory directory;
  SupervisorOptions options = job("", 3, directory);
  setenv("TEST_TRANSPORT", "tcp", 1);
  setenv("RINGGRAD_TIMEOUT", "20", 1);
  {
    const FileDescriptor free_port = bind_tcp({"127.0.0.1", 0});
    options.port = local_address(free_port).port;
  }
  std::atomic<int> connected = 0;
  const std::jthread strangers([&](std::stop_token stop) {
    std::vector<FileDescriptor> silent;
    while (!stop.stop_requested()) {
      try {
        FileDescriptor socket = connect_tcp({"127.0.0.1", static_cast<uint16_t>(options.port)},
                                            Deadline::after(milliseconds(5)));
        const std::string garbage =
            connected % 2 ? std::string(500, '\xff') : "GET / HTTP/1.1\r\n\r\n";
        send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (++connected % 3 == 0 && silent.size() < 200) silent.push_back(std::move(socket));
      } catch (const DistributedError&) {  // no socket listens before and after
      }
    }
  });
  for (int i = 0; i < 10; ++i) {
    const JobResult result = supervise(options);
    CAPTURE(i, result.report);
    REQUIRE(result.exit_code == 0);
  }
  REQUIRE(connected > 0);
}

}  // namespace ringgrad::test::faults_test
