// A job whose ranks die, hang, leave and join: this program starts itself again as the ranks.
#include "ringgrad/distributed/elastic_job.h"

#include <signal.h>

#include <deque>
#include <fstream>
#include <iostream>
#include <thread>

#include "ringgrad/distributed/elastic/coordinator.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/distributed/job.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

constexpr int kShards = 4;
constexpr int64_t kBatch = 10;
constexpr int64_t kSteps = 12;

// -- what a rank does -----------------------------------------------------------------------------

struct Net : nn::Module {
  nn::Linear fc1{6, 8};
  nn::Linear fc2{8, 3};
  nn::BatchNorm1d bn{8};
  nn::Dropout dropout{0.25};
  Net() {
    register_module("fc1", fc1);
    register_module("bn", bn);
    register_module("dropout", dropout);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(dropout(relu(bn(fc1(x))))); }
};

// Lets rank `slot` fail at the beginning of a step, once in the job.
void mishap(const std::string& scenario, int64_t step) {
  const std::string slot = variable("LOCAL_RANK");
  const std::string directory = variable("TEST_DIRECTORY");
  const auto once = [&](const std::string& what, const std::string& whom, int64_t when) {
    if (!contains(scenario, what) || slot != whom || step != when) return false;
    const std::string mark = directory + "/" + what;
    if (std::filesystem::exists(mark)) return false;
    std::ofstream{mark};
    return true;
  };
  if (once("zero dies", "0", 3)) raise(SIGKILL);
  if (once("one dies", "1", 5)) raise(SIGKILL);
  if (once("two leaves", "2", 7)) raise(SIGTERM);
  if (once("one hangs", "1", 4)) raise(SIGSTOP);
  if (once("one fails", "1", 4)) throw Error("bad batch");
  if (once("unfit", "0", 2)) {
    kill(getppid(), SIGUSR1);
    while (!std::filesystem::exists(pid_file(2)) || !is_gone(std::stoi(read_file(pid_file(2)))))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Each rank leaves its process id in a file, and its result at the end.
void train(const std::string& scenario) {
  manual_seed(3);
  Net net;
  optim::SGD optimizer(net.named_parameters(), {.lr = 0.05, .momentum = 0.9});
  std::vector<std::string> work = {"seed 3"};
  if (contains(scenario, "unfit") && variable("LOCAL_RANK") == "2") work = {"seed 4"};
  leave_pid(std::stoi(variable("LOCAL_RANK")));
  ElasticJob job(work);
  int64_t step = 0;
  bool saved = false;
  (void)job.run([&](ProcessGroup& group) {
    NamedTensors state = net.state_dict();
    for (auto& entry : optimizer.state_dict()) state.push_back(entry);
    step = hand_over(group, {step, state}).step;
    VirtualRanks ranks(net, group, {.shards = kShards, .seed = 11});
    if ((saved = job.is_last())) return;
    while (step < kSteps) {
      // No rank leaves while it is the last one with the state: the rank that has died is waited
      // for.
      const bool leaves = contains(scenario, "two leaves") && step == 7;
      if (leaves && group.size() < 3 &&
          !std::filesystem::exists(variable("TEST_DIRECTORY") + "/two leaves"))
        for (;;) job.check();
      mishap(scenario, step);
      if (contains(scenario, "more") && step == 6 && group.size() < 4) {
        if (group.is_main_process()) kill(getppid(), SIGUSR1);
        for (;;) job.check();  // until the next one joins
      }
      ranks.set_step(step);
      const auto [x, target] = samples({6}, 3, DType::Float32, step * kBatch, (step + 1) * kBatch);
      const RowRange own = ranks.own_rows(kBatch);
      ranks.step(kBatch, [&, x = x, target = target](const VirtualRanks::Shard& shard) {
        const auto rows = [&](const Tensor& t) {
          return contiguous(slice(t, 0, own.begin + shard.begin, own.begin + shard.end));
        };
        const Tensor sum = cross_entropy(net(rows(x)), rows(target), {.reduction = Reduction::Sum});
        sum.backward();
        return sum;
      });
      optimizer.step();
      ++step;
      job.check();
    }
    ranks.check_identical();
  });
  std::ofstream result(variable("TEST_DIRECTORY") + "/result" + variable("LOCAL_RANK"));
  result << (saved ? "saved " : "done ") << step << ' ';
  for (const auto& [name, tensor] : net.state_dict())
    result << hash_of(contiguous(tensor).raw_data(), tensor.nbytes()) << ' ';
  result.close();
  if (saved) throw DistributedError("too few are left");
}

struct Ended {
  JobResult job;
  std::vector<std::string> results;  // by slot; empty: it has left none
};

Ended run(const std::string& scenario, int ranks, ElasticRange range) {
  const Directory directory;
  SupervisorOptions options = job(scenario, ranks, directory);
  options.elastic = range;
  options.log_directory.clear();
  setenv("RINGGRAD_TIMEOUT", contains(scenario, "hangs") ? "0.5" : "60", 1);
  Ended ended{supervise(options), {}};
  for (int s = 0; s < range.max; ++s) {
    ended.results.push_back(read_file(directory.path + "/result" + std::to_string(s)));
    const std::string pid = read_file(directory.path + "/pid" + std::to_string(s));
    if (!pid.empty()) REQUIRE(is_gone(std::stoi(pid)));
  }
  return ended;
}

// Returns the result of a job without any fault.
const std::string& undisturbed() {
  static const std::string result = run("nothing", 1, {1, 1}).results[0];
  REQUIRE(result.starts_with("done 12 "));
  return result;
}

}  // namespace

TEST_CASE("a rank of a job", "[.]") {
  if (variable("RINGGRAD_STATUS_FD").empty()) return;
  signal(SIGTERM, SIG_DFL);  // which Catch listens to
  const int code = launch([] { train(variable("TEST_SCENARIO")); });
  std::cout << std::flush;
  std::_Exit(code);
}

TEST_CASE("the bits are those of the undisturbed job, whoever dies, hangs, leaves or joins",
          "[elastic][quick]") {
  // A rank that has died comes back, unless the others are done before.
  const auto [scenario, ranks, at_least] =
      GENERATE(table<std::string, int, int>({{"nothing", 3, 3},
                                             {"one dies", 2, 1},
                                             {"zero dies, one dies, two leaves", 3, 1},
                                             {"one hangs", 3, 2},
                                             {"more", 2, 4}}));
  CAPTURE(scenario);
  const Ended ended = run(scenario, ranks, {1, 4});
  CAPTURE(ended.job.report);
  REQUIRE(ended.job.exit_code == 0);
  int done = 0;
  for (const std::string& result : ended.results) {
    if (result.empty()) continue;
    if (result.starts_with("done 0 ")) continue;  // came when all was done
    ++done;
    REQUIRE(result == undisturbed());
  }
  REQUIRE(done >= at_least);
}

TEST_CASE("with too few ranks the state is saved, and the job ends with exit code 5",
          "[elastic][quick]") {
  const Ended ended = run("two leaves", 3, {3, 3});
  REQUIRE(ended.job.exit_code == kRankDied);
  REQUIRE(ended.job.report == "only 2 ranks are left, of at least 3\n");
  // A rank that leaves after a step may take along what the others still need of its last
  // collective.
  const std::string& saved = ended.results[0];
  CAPTURE(saved);
  REQUIRE((saved.starts_with("saved 7 ") || saved.starts_with("saved 6 ")));
  REQUIRE(ended.results[1] == ended.results[0]);
  REQUIRE(ended.results[2].empty());
}

TEST_CASE("a rank with other work may not join, and the job goes on", "[elastic][quick]") {
  const Ended ended = run("unfit", 2, {1, 3});
  REQUIRE(ended.job.exit_code == 0);
  REQUIRE(ended.results[0] == undisturbed());
  REQUIRE(ended.results[1] == undisturbed());
  REQUIRE(ended.results[2].empty());
}

TEST_CASE("a rank that fails by itself ends the job", "[elastic][quick]") {
  const Ended ended = run("one fails", 3, {1, 3});
  REQUIRE(ended.job.exit_code == kTrainingFailed);
  REQUIRE(contains(ended.job.report, "bad batch"));
}

TEST_CASE("the most advanced state goes to those behind", "[elastic][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    // The state is that after a loss in the middle of the last collective.
    const int64_t step = group.rank() == 1 ? 4 : 3;
    const Tensor weights = full({5}, static_cast<double>(step));
    const Tensor count = full({}, step, {.dtype = DType::Int64});
    const TrainingState state =
        hand_over(group, {step, {{"weights", weights}, {"count", count}}, str("at ", step)});
    must(state.step == 4 && state.words == "at 4" && count.item<int64_t>() == 4, "what rank 1 had");
    must(to_vector<float>(weights) == std::vector<float>(5, 4), "and its weights");
    must(hand_over(group, state).step == 4, "nothing is to be done");
  });
}

TEST_CASE("two ranks that have done the same steps and differ are an error",
          "[elastic][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const Tensor weights = full({5}, group.rank() == 2 ? 1.5 : 1.0);
    try {
      (void)hand_over(group, {group.rank() == 0 ? 6 : 7, {{"weights", weights}}, ""});
      must(false, "no error");
    } catch (const OutOfStepError& error) {
      must(contains(error.what(), "ranks 1 and 2 have both done 7 steps, and have other states"),
           error.what());
    }
  });
}

// A coordinator, and members that stand for processes.
struct Members {
  Coordinator coordinator;
  std::deque<ElasticMember> members;

  Members(ElasticRange range, const std::vector<pid_t>& processes)
      : coordinator(range, static_cast<int>(processes.size()), std::chrono::milliseconds(50)) {
    setenv("RINGGRAD_MEMBERSHIP_FD", std::to_string(coordinator.descriptor()).c_str(), 1);
    for (int s = 0; s < static_cast<int>(processes.size()); ++s) {
      setenv("LOCAL_RANK", std::to_string(s).c_str(), 1);
      coordinator.starting(s);
      coordinator.started(s, processes[static_cast<size_t>(s)]);
      members.emplace_back();
    }
    for (const char* name : {"RINGGRAD_MEMBERSHIP_FD", "LOCAL_RANK"}) unsetenv(name);
  }
  Place place_of(int slot) {
    return members[static_cast<size_t>(slot)].await_generation(true).value();
  }
  // Looks until there is a message, or for this many milliseconds.
  std::string look(int at_most = 10'000) {
    const auto until = Deadline::after(std::chrono::milliseconds(at_most));
    std::string said;
    while (said.empty() && coordinator.verdict().empty() && !until.passed())
      said = coordinator.look();
    return said;
  }
};

struct TwoMembers : Members {
  explicit TwoMembers(pid_t second) : Members({1, 2}, {getpid(), second}) {
    std::jthread first([&] { place_of(0); });
    std::jthread other([&] { place_of(1); });
    while (!coordinator.founded()) coordinator.look();
  }

  // The first member waits for the next generation, and the second one does not. Returns the first
  // one's new place.
  Place second_one_hangs() {
    Place place;
    std::jthread first([&] { place = place_of(0); });
    const std::string said = look();
    must(contains(said, "[rank 1] does not come, and is left behind"), said.c_str());
    return place;
  }
};

TEST_CASE("a rank that was left behind may not write", "[elastic][quick][threads]") {
  TwoMembers job(getpid());
  { const ElasticMember::WritePermit member(job.members[1]); }
  job.second_one_hangs();
  const ElasticMember::WritePermit first(job.members[0]);
  REQUIRE_THROWS_AS(ElasticMember::WritePermit(job.members[1]), LeftBehindError);
  REQUIRE_THROWS_AS(job.members[1].await_generation(false), LeftBehindError);
}

// The launcher numbers the members of the next generation, one field after the other. A member that
// was left behind, and looks for addresses meanwhile, must not take the new numbers for its own's.
TEST_CASE("a rank takes no numbers of the next generation", "[elastic][quick][threads]") {
  const int next_number = GENERATE(0, 7);
  TwoMembers job(getpid());
  const Membership members = Membership::open(job.coordinator.descriptor());
  members.slot(1).address_of = 1;
  members.slot(1).rank = next_number;
  const std::jthread launcher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    members.page().over = 1;
  });
  REQUIRE_THROWS_AS(job.members[0].exchange({.generation = 1, .rank = 0, .size = 2}, "an address",
                                            std::chrono::seconds(5)),
                    GroupChanged);
}

TEST_CASE("a rank that hangs while it writes is killed", "[elastic][quick][threads]") {
  ChildOptions options;
  options.command = {"sleep", "1000"};
  const ChildProcess child = start_child(options);
  TwoMembers job(child.pid);
  const ElasticMember::WritePermit writing(job.members[1]);
  job.second_one_hangs();
  REQUIRE(exit_code_of(child) == 128 + SIGKILL);
}

TEST_CASE("the last rank that has the state may take its time", "[elastic][quick][threads]") {
  TwoMembers job(getpid());
  std::string what;
  REQUIRE(job.coordinator.ended(1, SIGKILL, "", what));
  REQUIRE(job.look(200) == "");  // four timeouts
  REQUIRE(job.coordinator.verdict() == "");
  std::jthread first([&] { job.place_of(0); });
  REQUIRE(job.look() == "generation 2: ranks 0\n");
}

TEST_CASE("of ranks that live and miss each other again and again one saves",
          "[elastic][quick][threads]") {
  TwoMembers job(getpid());
  for (int generation = 2; generation < 6; ++generation) {
    std::jthread first([&] { job.place_of(0); });
    std::jthread second([&] { job.place_of(1); });
    REQUIRE(job.look() == str("generation ", generation, ": ranks 0, 1\n"));
  }
  Place place;
  bool left_behind = false;
  {
    std::jthread first([&] { place = job.place_of(0); });
    std::jthread second([&] {
      try {
        job.place_of(1);
      } catch (const LeftBehindError&) {
        left_behind = true;
      }
    });
    REQUIRE(job.look() == "generation 6: ranks 0\n");
  }
  REQUIRE((place.last && place.size == 1 && left_behind));
  REQUIRE(contains(job.coordinator.verdict(), "miss each other again and again"));
}

TEST_CASE("a founder that does not come is not waited for without end",
          "[elastic][quick][threads]") {
  {
    Members job({2, 3}, {getpid(), getpid(), getpid()});
    std::jthread first([&] { job.place_of(0); });
    std::jthread second([&] { job.place_of(1); });
    REQUIRE(job.look() == "the job begins with 2 of 3 ranks\n");
  }
  Members job({3, 3}, {getpid(), getpid(), getpid()});
  std::jthread first([&] { (void)job.members[0].await_generation(false); });
  job.look();
  REQUIRE(job.coordinator.verdict() ==
          "only 1 of 3 ranks have come within 0.5 s, and the job needs 3\n");
  REQUIRE(job.coordinator.over());
  job.members[0].mark_finished();
}

TEST_CASE("a timeout of which no multiple can be waited for is refused", "[elastic][quick]") {
  const Coordinator coordinator({1, 1}, 1, std::chrono::milliseconds(50));
  setenv("RINGGRAD_MEMBERSHIP_FD", std::to_string(coordinator.descriptor()).c_str(), 1);
  setenv("LOCAL_RANK", "0", 1);
  for (const auto timeout : {std::chrono::milliseconds(0), std::chrono::milliseconds::max()}) {
    InitOptions options;
    options.timeout = timeout;
    require_error<Error>("elastic: a timeout of", [&] { ElasticJob({}, options); });
  }
  for (const char* name : {"RINGGRAD_MEMBERSHIP_FD", "LOCAL_RANK"}) unsetenv(name);
}

TEST_CASE("a job of a number of ranks that it does not allow is refused", "[elastic][quick]") {
  const Directory directory;
  SupervisorOptions options = job("nothing", 2, directory);
  options.elastic = {3, 4};
  REQUIRE_THROWS_AS(supervise(options), Error);
}
