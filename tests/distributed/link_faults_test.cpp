// Faults of the network between ranks. Every fault must end, on every rank, in an error that names
// the link or the rank behind it, or in the right result.
#include <climits>
#include <random>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/distributed/rendezvous/rendezvous.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/fault_proxy.h"
#include "ringgrad/tests/distributed/job.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad::test::link_faults_test {

namespace {

using std::chrono::milliseconds;

// Returns the seed of the places of faults; tests/attack/on_wires.py tries many.
unsigned seed() {
  return static_cast<unsigned>(number_from_environment("RINGGRAD_TEST_SEED", 0, INT_MAX, 12345));
}

// Returns a rank's address as it travels at the rendezvous, with the TCP line "tcp HOST PORT"
// changed.
std::string through(FaultProxy& proxy, const std::string& card) {
  const std::string host = "\ntcp 127.0.0.1 ";
  const size_t begin = card.find(host) + host.size();
  const size_t end = card.find('\n', begin);
  const auto port = static_cast<uint16_t>(std::stoi(card.substr(begin, end - begin)));
  return card.substr(0, begin) + std::to_string(proxy.towards({"127.0.0.1", port}).port) +
         card.substr(end);
}

// Returns the error of each of `size` ranks that ran body(group), connected by TCP through the
// proxy.
template <class Body>
std::vector<std::string> errors_through(FaultProxy& proxy, int size, HostOptions options,
                                        Body body) {
  FileDescriptor reserved = bind_tcp({"127.0.0.1", 0});
  const RendezvousOptions rendezvous{local_address(reserved), "secret", std::chrono::seconds(10)};
  std::vector<std::unique_ptr<int>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<int>(r));
  return errors_of_ranks(std::move(ranks), [&](int rank) {
    ConnectOptions connect;
    connect.transport = "tcp";
    connect.secret = "secret";
    connect.timeout = options.timeout;
    Connected connected = connect_ranks(rank, size, connect, [&](const std::string& value) {
      auto cards = meet(rank, size, value, rendezvous);
      for (int peer = 0; peer < rank; ++peer) cards[peer] = through(proxy, cards[peer]);
      return cards;
    });
    HostOptions own = options;
    own.job = connected.job;
    HostProcessGroup group(std::move(connected.transport), own);
    body(group);
  });
}

constexpr int64_t kCount = 50'000;

// The algorithms that send messages.
constexpr AllReduceAlgorithm kAlgorithms[] = {
    AllReduceAlgorithm::Auto, AllReduceAlgorithm::GatherBroadcast, AllReduceAlgorithm::Exchange,
    AllReduceAlgorithm::Direct, AllReduceAlgorithm::SegmentedRing};
AllReduceAlgorithm algorithm(int i) { return kAlgorithms[i % std::size(kAlgorithms)]; }

void train(ProcessGroup& group, int steps) {
  const Tensor gradients = zeros({kCount});
  for (int64_t step = 0; step < steps; ++step) {
    fill_(gradients, group.rank() + 1);
    group.all_reduce(gradients, ReduceOp::Sum, {.step = step, .bucket = 0}).wait();
    const auto expected = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (int64_t i = 0; i < kCount; ++i)
      if (gradients.data<float>()[i] != expected) throw Error("WRONG SUM");
  }
}

bool names_a_rank_or_link(const std::string& error) {
  return contains(error, "the connection between ranks ") ||
         contains(error, " died: its connection to rank ") ||
         contains(error, "cannot connect to rank ") || contains(error, "has left the group") ||
         // Reset before the other side had accepted it.
         contains(error, " did not connect to rank ");
}

}  // namespace

TEST_CASE("a slow and distant network only takes longer", "[link_faults]") {
  Fault slow;
  slow.bytes_per_s = 2e6;
  slow.delay = milliseconds(50);
  FaultProxy proxy(slow);
  const int size = GENERATE(2, 3);
  for (const std::string& error :
       errors_through(proxy, size, {}, [](ProcessGroup& group) { train(group, 3); }))
    REQUIRE(error == "");
}

// The faults cover every phase of a connection's life: its handshake (148 bytes), headers,
// payloads.
constexpr size_t kConnecting = 400;  // bytes over both connections of a pair, until it is connected
TEST_CASE("a connection that is cut after k bytes is named by every rank", "[link_faults]") {
  const auto kind = GENERATE(Fault::Reset, Fault::End);
  const int size = GENERATE(2, 3);
  std::mt19937 random(seed());
  int trials = 0;
  const auto trial = [&](size_t after, milliseconds delay = {}) {
    FaultProxy proxy({kind, after, 0, delay});
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = errors_through(proxy, size, {.algorithm = algorithm(trials++)},
                                       [](ProcessGroup& group) { train(group, 20); });
    CAPTURE(after, size, trials, errors);
    // The timeout is 60.
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    REQUIRE(proxy.happened());
    // A connection that is lost while ranks connect is made again, and the sums are right then.
    const auto is_fine = [](const std::string& error) { return error.empty(); };
    if (after < kConnecting && std::all_of(errors.begin(), errors.end(), is_fine)) return;
    for (const std::string& error : errors) {
      CAPTURE(error);
      REQUIRE(names_a_rank_or_link(error));
    }
  };
  for (const size_t after : {150, 200, 1000}) trial(after);
  // One side has connected and fails, while its proof is still on the way to the other.
  trial(150, milliseconds(20));
  for (int i = 0; i < 50; ++i) trial(kConnecting + random() % 1'000'000);
}

TEST_CASE("a partition ends at the deadline, naming who is cut off", "[link_faults]") {
  const int size = GENERATE(2, 3);
  HostOptions options;
  options.algorithm = algorithm(GENERATE(range(0, 5)));
  options.timeout = milliseconds(2000);
  FaultProxy proxy({Fault::BlackHole, 300'000});
  const auto begin = std::chrono::steady_clock::now();
  const auto errors =
      errors_through(proxy, size, options, [](ProcessGroup& group) { train(group, 50); });
  const auto took = std::chrono::steady_clock::now() - begin;
  for (size_t r = 0; r < errors.size(); ++r) {
    CAPTURE(r, options.algorithm, errors[r]);
    REQUIRE(contains(errors[r], "nothing moved for 2 s"));
    REQUIRE(contains(errors[r], "rank " + std::to_string(r == 0 ? 1 : 0) +
                                    " does not answer: it is stopped, starved, or cut off"));
  }
  REQUIRE(took < options.timeout + std::chrono::seconds(10));
}

// The byte may belong to a header or to a payload, and lie on any link, in either direction.
TEST_CASE("no flipped bit becomes a wrong sum, and every rank names the link", "[link_faults]") {
  const int size = GENERATE(2, 3);
  HostOptions options;  // as they are
  options.timeout = milliseconds(2000);
  std::mt19937 random(seed());
  for (int i = 0; i < 30; ++i) {
    const size_t after = 148 * static_cast<size_t>(size * (size - 1)) + random() % 400'000;
    options.algorithm = algorithm(i);
    FaultProxy proxy({Fault::Flip, after});
    const auto errors =
        errors_through(proxy, size, options, [](ProcessGroup& group) { train(group, 10); });
    CAPTURE(after, i, errors[0], errors[1]);
    REQUIRE(proxy.happened());
    for (const std::string& error : errors) {
      CAPTURE(error);
      REQUIRE(contains(error, "a message from rank "));
      REQUIRE(contains(error, " over tcp"));
      REQUIRE(
          (contains(error, "was damaged on its way") || contains(error, "damaged message header")));
    }
  }
}

TEST_CASE("a flipped bit in a message that a receive waits for is an error",
          "[link_faults][quick]") {
  HostOptions options;
  options.timeout = milliseconds(5000);
  FaultProxy proxy({Fault::Flip, 100'000});  // amid the message
  const auto errors = errors_through(proxy, 2, options, [](ProcessGroup& group) {
    const Tensor ready = zeros({1});
    const Tensor x = zeros({kCount});
    if (group.rank() == 0) {
      group.recv(ready, 1).wait();
      group.send(x, 1).wait();
    } else {
      const Work received = group.recv(x, 0, {.async = true});
      group.send(ready, 0).wait();
      received.wait();
    }
  });
  REQUIRE(proxy.happened());
  REQUIRE(contains(errors[1], "was damaged on its way: the CRC of its"));
}

}  // namespace ringgrad::test::link_faults_test
