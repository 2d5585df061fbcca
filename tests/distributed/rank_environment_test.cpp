// Ranks from the environment of every starter, and groups that connect themselves and split.
#include "ringgrad/distributed/job/rank_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/distributed/agreement/transport_names.h"
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/networks/networks.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/distributed/rendezvous/handshake.h"
#include "ringgrad/distributed/rendezvous/rendezvous.h"
#include "ringgrad/distributed/starters/other_starters.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad::test::rank_environment_test {

namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment from(const Variables& variables) {
  return rank_environment_from([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    from(variables);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

// Runs body(group) on `size` ranks that meet and connect as processes do.
// They call themselves `host`, which for others leads here.
template <class Body>
void run_connected(int size, const std::string& transport, Body body,
                   const std::string& host = "127.0.0.1") {
  FileDescriptor reserved = listen_tcp({"127.0.0.1", 0});
  const RendezvousOptions rendezvous{local_address(reserved), "secret", std::chrono::seconds(10)};
  reserved.reset();
  std::vector<std::unique_ptr<int>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<int>(r));
  const auto errors = errors_of_ranks(std::move(ranks), [&](int rank) {
    ConnectOptions connect;
    connect.transport = transport;
    connect.secret = "secret";
    connect.timeout = std::chrono::seconds(10);
    connect.host = host;
    Connected connected = connect_ranks(rank, size, connect, [&](const std::string& value) {
      auto cards = meet(rank, size, value, rendezvous);
      for (std::string& card : cards)
        if (const size_t at = card.find(host); at != std::string::npos)
          card.replace(at, host.size(), "127.0.0.1");
      return cards;
    });
    HostOptions options;
    options.job = connected.job;
    options.connect = connect;
    HostProcessGroup group(std::move(connected.transport), options);
    body(group);
  });
  for (const auto& error : errors) REQUIRE(error == "");
}

}  // namespace

TEST_CASE("nothing set: one rank", "[rank_environment][quick][threads]") {
  const RankEnvironment r = from({});
  REQUIRE(r.rank == 0);
  REQUIRE(r.size == 1);
  REQUIRE(r.source.empty());
}

TEST_CASE("ranks of every starter", "[rank_environment][quick][threads]") {
  RankEnvironment r = from({{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29501"},
                            {"RINGGRAD_SECRET", "a secret of enough letters"}});
  REQUIRE((r.rank == 3 && r.size == 4 && r.local_rank == 1 && r.local_size == 2));
  REQUIRE((r.address.host == "10.0.0.1" && r.address.port == 29501 && r.source == "RANK"));
  REQUIRE(r.secret == "a secret of enough letters");

  r = from({{"OMPI_COMM_WORLD_RANK", "1"},
            {"OMPI_COMM_WORLD_SIZE", "2"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
            {"PMIX_NAMESPACE", "12345"},
            {"SLURM_PROCID", "0"},
            {"SLURM_NTASKS", "9"}});
  REQUIRE((r.rank == 1 && r.size == 2 && r.source == "OMPI_COMM_WORLD_RANK"));
  REQUIRE((r.address.host == "127.0.0.1" && r.address.port >= 20'000 && r.address.port < 30'000));

  r = from({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
  REQUIRE((r.rank == 0 && r.size == 3 && r.source == "PMI_RANK"));

  r = from({{"SLURM_PROCID", "5"},
            {"SLURM_STEP_NUM_TASKS", "8"},
            {"SLURM_STEP_NUM_NODES", "2"},
            {"SLURM_LOCALID", "1"},
            {"SLURM_STEP_NODELIST", "node[03-04]"},
            {"SLURM_JOB_NODELIST", "node[01-09]"},
            {"SLURM_JOB_ID", "77"}});
  REQUIRE((r.rank == 5 && r.size == 8 && r.local_rank == 1 && r.local_size == 4 &&
           r.source == "SLURM_PROCID"));
  REQUIRE(r.address.host == "node03");

  r = from({{"PMI_RANK", "2"},  // srun --mpi=pmi2
            {"PMI_SIZE", "3"},
            {"SLURM_PROCID", "2"},
            {"SLURM_STEP_NUM_TASKS", "3"},
            {"SLURM_STEP_NUM_NODES", "2"},
            {"SLURM_LOCALID", "0"},
            {"SLURM_STEP_NODELIST", "gpu[7,9]"}});
  REQUIRE((r.rank == 2 && r.size == 3 && r.local_rank == 0 && r.local_size == 2 &&
           r.source == "PMI_RANK"));
  REQUIRE(r.address.host == "gpu7");

  r = from({{"SLURM_PROCID", "0"},  // one node: the ranks need no name, nor a secret
            {"SLURM_STEP_NUM_TASKS", "2"},
            {"SLURM_STEP_NUM_NODES", "1"},
            {"SLURM_STEP_NODELIST", "gpu7"}});
  REQUIRE((r.local_size == 2 && r.address.host == "127.0.0.1"));

  // A batch script.
  r = from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "node[03-04]"}});
  REQUIRE((r.size == 1 && r.source.empty()));
}

TEST_CASE("torchrun's own store keeps its port", "[rank_environment][quick][threads]") {
  const RankEnvironment r = from({{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", "29500"},
                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  REQUIRE(r.address.port == 29501);
}

TEST_CASE("jobs of one starter get different ports", "[rank_environment][quick][threads]") {
  const auto port = [](const char* id) {
    return from({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", id}}).address.port;
  };
  REQUIRE(port("1000") == port("1000"));
  REQUIRE(port("1000") != port("1001"));
}

TEST_CASE("environments that make no sense are refused by name",
          "[rank_environment][quick][threads]") {
  REQUIRE(contains(error_of({{"RANK", "0"}}), "RANK is set, but WORLD_SIZE is not"));
  // If this were accepted, every process would train alone.
  REQUIRE(contains(error_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 is set, but RANK is not"));
  REQUIRE(contains(error_of({{"WORLD_SIZE", "2"}, {"RANK", ""}}),
                   "WORLD_SIZE=2 is set, but RANK is not"));
  REQUIRE(contains(error_of({{"LOCAL_RANK", "1"}}), "LOCAL_RANK=1 is set, but RANK is not"));
  REQUIRE(contains(error_of({{"LOCAL_WORLD_SIZE", "4"}}),
                   "LOCAL_WORLD_SIZE=4 is set, but RANK is not"));
  REQUIRE(contains(error_of({{"OMPI_COMM_WORLD_SIZE", "3"}}), "OMPI_COMM_WORLD_RANK is not"));
  REQUIRE(contains(error_of({{"PMI_SIZE", "3"}}), "PMI_RANK is not"));
  REQUIRE(from({{"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}).size == 1);
  // Another starter's rank.
  REQUIRE(from({{"WORLD_SIZE", "2"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}).size == 3);
  REQUIRE(contains(error_of({{"RANK", "two"}, {"WORLD_SIZE", "2"}}), "RANK='two'"));
  REQUIRE(contains(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK='-1'"));
  REQUIRE(contains(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
                   "RANK=2 does not exist with WORLD_SIZE=2"));
  REQUIRE(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2000000000"}}),
                   "WORLD_SIZE=2000000000, expected 1 to 100000"));
  REQUIRE(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
                   "MASTER_PORT=70000"));
  REQUIRE(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "0"}}),
                   "LOCAL_WORLD_SIZE"));
}

TEST_CASE("ranks on several machines need an address where they meet, unless MPI connects them",
          "[rank_environment][quick]") {
  const RankEnvironment nowhere = from({{"OMPI_COMM_WORLD_RANK", "0"},
                                        {"OMPI_COMM_WORLD_SIZE", "4"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  REQUIRE(nowhere.address.host.empty());
  REQUIRE_THROWS_AS(init_process_group(nowhere, {.backend = "ring"}), EnvironmentError);
  // These values once overflowed.
  for (const auto timeout : {std::chrono::milliseconds(0), std::chrono::milliseconds::max()}) {
    InitOptions options;
    options.timeout = timeout;
    REQUIRE_THROWS_AS(init_process_group(nowhere, options), Error);
  }
}

TEST_CASE("the first host of a Slurm node list", "[rank_environment][quick][threads]") {
  REQUIRE(first_host("node3") == "node3");
  REQUIRE(first_host("a,b") == "a");
  REQUIRE(first_host("node[03-05,9],gpu1") == "node03");
  REQUIRE(first_host("gpu1,node[03-05]") == "gpu1");
  REQUIRE(first_host("node[7]") == "node7");
}

TEST_CASE("a secret file is for its owner alone", "[rank_environment][quick][threads]") {
  std::string directory = (std::filesystem::temp_directory_path() / "ringgrad-XXXXXX").string();
  REQUIRE(mkdtemp(directory.data()) != nullptr);
  const std::string file = directory + "/secret";
  const Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"RINGGRAD_SECRET_FILE", file}};
  REQUIRE(contains(error_of(variables), "No such file"));
  std::ofstream(file) << "sixteen letters!\n";
  chmod(file.c_str(), 0600);
  REQUIRE(from(variables).secret == "sixteen letters!");
  chmod(file.c_str(), 0640);
  REQUIRE(contains(error_of(variables), "others than its owner can read"));
  std::filesystem::remove_all(directory);
}

TEST_CASE("a secret that can be guessed is refused, and none is a word",
          "[rank_environment][quick]") {
  const auto with = [](const char* secret) {
    return Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"RINGGRAD_SECRET", secret}};
  };
  REQUIRE(
      contains(error_of(with("fifteen letters")), "RINGGRAD_SECRET: 15 characters can be guessed"));
  REQUIRE(from(with("none")).secret == "none");
  REQUIRE(from(with("")).secret.empty());
}

TEST_CASE("several machines do not meet at a name for this machine alone",
          "[rank_environment][quick][threads]") {
  for (const char* meant : {"localhost", "127.0.0.1", "::1", "192.0.2.1"}) check_reachable(meant);
  // Known, too, and not the word for it.
  REQUIRE_THROWS_AS(check_reachable("LOCALHOST"), EnvironmentError);
}

TEST_CASE("a place where ranks meet is a host and a port", "[rank_environment][quick]") {
  const auto place = [](const std::string& url) { return to_string(networks->parse_url(url)); };
  CHECK(networks->parse_url("tcp://[::1]:29400").host == "::1");
  CHECK(networks->parse_url("tcp://[fe80::1%eth0]:1").host == "fe80::1%eth0");
  CHECK(networks->parse_url("tcp://node-1:65534").host == "node-1");
  CHECK(networks->parse_url("tcp://node-1:65534").port == 65534);
  for (const char* url : {"tcp://x:0", "tcp://x:-1", "tcp://x:65535", "tcp://::1:29400",
                          "tcp://[::1:29400", "tcp://::1]:29400", "udp://x:1", "tcp://x", ""})
    CHECK_THROWS_AS(place(url), Error);
}

TEST_CASE("ranks connect by every transport that has a name",
          "[rank_environment][quick][threads]") {
  const std::string transport = GENERATE(from_range(transport_names()));
  const int size = GENERATE(1, 2, 5);
  run_connected(size, transport, [&](ProcessGroup& group) {
    const bool in_memory =
        transport == "auto" || find_channel_kind(transport)->reach == Reach::Memory;
    must(size == 1 || group.backend() == (in_memory ? "shared memory" : "ring over " + transport),
         "transport");
    const Tensor x = full({1000}, group.rank() + 1);
    group.all_reduce(x).wait();
    must(x.data<float>()[999] == static_cast<float>(size * (size + 1) / 2), "sum");
  });
}

TEST_CASE("ranks may be reached at addresses that are not their machine's",
          "[rank_environment][quick][threads]") {
  run_connected(
      2, "tcp", [](ProcessGroup& group) { group.barrier().wait(); }, "192.0.2.1");
}

TEST_CASE("groups split by color and are ordered by key", "[rank_environment][quick][threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  run_connected(5, transport, [](ProcessGroup& group) {
    const int rank = group.rank();
    // {0, 2}, {1, 3}, nothing; in reverse order.
    const auto part = group.split(rank == 4 ? -1 : rank % 2, -rank);
    if (rank == 4)
      must(part == nullptr, "a negative color gives a group");
    else
      must(part->size() == 2 && part->rank() == (rank < 2 ? 1 : 0), "ranks");
    if (part) {
      const Tensor x = full({10}, rank);
      part->all_reduce(x).wait();
      must(x.data<float>()[0] == static_cast<float>(rank % 2 == 0 ? 2 : 4), "sum in the part");
    }
    const Tensor y = full({10}, rank);  // the parent still works
    group.all_reduce(y).wait();
    must(y.data<float>()[0] == 10, "sum in the whole");
  });
}

TEST_CASE("errors of a group that was split off tell its ranks in the job",
          "[rank_environment][quick][threads]") {
  run_connected(4, "auto", [](ProcessGroup& group) {
    const auto pair = group.split(group.rank() / 2);
    const auto reversed = pair->split(0, -pair->rank());
    try {
      reversed->barrier().wait();  // some ranks may still be in it when one gives up
      if (group.rank() == 3) reversed->abort("of a reason");
      reversed->barrier().wait();
      must(group.rank() < 2, "the barrier of a group that was given up");
    } catch (const DistributedError& error) {
      must(group.rank() >= 2 &&
               contains(error.what(),
                        "of a reason; this group's ranks from 0 on are the job's 3, 2"),
           error.what());
    }
  });
}

TEST_CASE("a group that was split off ends with the group that it came from",
          "[rank_environment][quick][threads]") {
  const bool while_it_waits = GENERATE(true, false);
  std::atomic<int> heard = 0;
  run_connected(4, "auto", [&](ProcessGroup& group) {
    const auto pair = group.split(group.rank() / 2);
    const auto same = pair->split(0);
    const auto end = Deadline::after(std::chrono::seconds(5));
    if (group.rank() == 3) {
      if (while_it_waits) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group.abort("of a reason", FailureKind::Failed);
    }
    while (group.rank() % 2 == 1 && heard < 2 && !end.passed())  // who is waited for
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // A rank to which all of a barrier's messages have come passes it, until it has heard itself.
    while ((!while_it_waits || group.rank() % 2 == 1) && !same->failure() && !end.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      same->barrier({.timeout = std::chrono::seconds(5)}).wait();
      must(false, "a barrier of a group that has ended");
    } catch (const GivenUpError& error) {
      must(contains(error.what(), "split off has ended: of a reason"), error.what());
    } catch (const Error&) {
      ++heard;
      throw;
    }
    ++heard;
  });
}

TEST_CASE("memory cannot be shared with a rank that has left",
          "[rank_environment][quick][threads]") {
  run_connected(2, "shm", [&](ProcessGroup& group) {
    if (group.rank() == 1) return;
    try {
      (void)group.allocate_shared(64);
      must(false, "memory of a group of which a rank has left");
    } catch (const DistributedError& error) {
      must(contains(error.what(), "rank 1 has left the group"), error.what());
    }
  });
}

TEST_CASE("a rank that dies while others connect is named, whatever it has left behind",
          "[rank_environment][quick][threads]") {
  ConnectOptions options;
  options.transport = "tcp";
  options.secret = "secret";
  std::thread two;
  const auto exchange = [&](const std::string& card) {  // rank 1 never connects, rank 2 soon dies
    two = std::thread([card] {
      Address zero;
      std::istringstream(card.substr(card.find("\ntcp ") + 5)) >> zero.host >> zero.port;
      const auto deadline = Deadline::after(std::chrono::seconds(10));
      const FileDescriptor socket = connect_tcp(zero, deadline);
      client_handshake(socket, {ConnectionPurpose::Control, 2, 3, ""}, "secret", deadline,
                       "rank 0");
      write_all(socket, std::as_bytes(std::span("a question")), deadline, "rank 0");
    });
    return std::vector<std::string>(3, card);
  };
  std::string error;
  try {
    (void)connect_ranks(0, 3, options, exchange);
  } catch (const DistributedError& e) {
    error = e.what();
  }
  two.join();
  REQUIRE(contains(error, "rank 2 died"));
}

// framed_channel.cpp is all that this program has of one.
TEST_CASE("a transport that registers itself can be named, and auto leaves it alone",
          "[rank_environment][quick]") {
  CHECK(transport_names() == std::vector<std::string>{"auto", "shm", "tcp", "framed"});
  CHECK(transport_choices() == "auto, shm, tcp or framed");
  ConnectOptions options;
  std::string offered;
  const auto to_another_machine = [&](const std::string& card) {
    offered = card;
    return std::vector<std::string>{card, "1" + card.substr(card.find('\n'))};
  };
  options.transport = "pigeon";
  CHECK_THROWS_WITH(connect_ranks(0, 2, options, to_another_machine),
                    "transport: 'pigeon', expected auto, shm, tcp or framed");
  options.transport = "framed";
  CHECK_THROWS_WITH(connect_ranks(0, 2, options, to_another_machine),
                    "transport: framed was asked for, but ranks 0 and 1 do not share a machine");
  CHECK(contains(offered, "\nframed ringgrad-framed-"));
  CHECK_FALSE(contains(offered, "\ntcp "));
  options.transport = "auto";
  options.timeout = std::chrono::milliseconds(1);
  CHECK_THROWS_AS(connect_ranks(0, 2, options, to_another_machine), TimeoutError);
  CHECK(contains(offered, "\nshm ringgrad-"));
  CHECK(contains(offered, "\ntcp 127.0.0.1 "));
  CHECK_FALSE(contains(offered, "framed"));
}

namespace {

// A rank's table, as another rank would send it: the line that begins so is another one.
std::string with_line(const std::string& table, const std::string& begin, const std::string& line) {
  const size_t at = ('\n' + table).find('\n' + begin);
  REQUIRE(at != std::string::npos);
  return table.substr(0, at) + line + table.substr(table.find('\n', at));
}

std::string disagreement(const std::vector<std::string>& tables) {
  try {
    rank_table->agree(tables, 0);
    return "";
  } catch (const OutOfStepError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("ranks that would compute other bits are named before they connect",
          "[rank_environment][quick]") {
  ConnectOptions options;
  const std::string own = rank_table->own(options);
  for (const std::string name : {"version ", "compiler ", "backend ", "transport "}) {
    const std::string error = disagreement({own, own, with_line(own, name, name + "other")});
    CAPTURE(error);
    REQUIRE(contains(error, "rank 2 has another setting than rank 0: " + name + "other there, "));
  }
  REQUIRE(disagreement({own, own}) == "");
  options.transport = "tcp";
  REQUIRE(contains(disagreement({own, rank_table->own(options)}),
                   "transport tcp there, transport auto on rank 0"));
  // A rank without settings has another version of this library.
  REQUIRE(contains(disagreement({own, ""}), "rank 1 has another setting than rank 0: nothing"));
  REQUIRE_THROWS_AS(connect_ranks(0, 2, options,
                                  [&](const std::string& card) {
                                    std::string other = card;
                                    other.replace(other.rfind("tcp"), 3, "shm");
                                    return std::vector{card, other};
                                  }),
                    OutOfStepError);
}

TEST_CASE("ranks agree on the best kernels that all of them have", "[rank_environment][quick]") {
  const std::string own = rank_table->own({});
  const std::string before = isa();
  const amx::Tiles tiles = amx::tiles();
  const auto of = [&](const std::string& isas) { return isas + own.substr(own.find('\n')); };
  for (const BuiltIsa& built : built_isas()) {
    if (!built.on_this_machine) continue;
    REQUIRE(disagreement({own, of(built.name), own}) == "");
    CHECK(isa() == built.name);
    use_isa(before);
  }
  const std::string error = disagreement({own, of("v0 v1")});
  CAPTURE(error);
  CHECK(contains(error, "no instructions are common to all ranks: rank 1 has kernels for v0, v1"));
  CHECK(isa() == before);
  amx::use_tiles(amx::Tiles::Emulated);
  const std::string with_tiles = rank_table->own({});
  REQUIRE(disagreement({with_tiles, with_tiles}) == "");
  CHECK(uses_tiles());
  REQUIRE(disagreement({with_tiles, own}) == "");
  CHECK(uses_tiles() == (tiles != amx::Tiles::None));
  amx::use_tiles(tiles);
}

}  // namespace ringgrad::test::rank_environment_test
