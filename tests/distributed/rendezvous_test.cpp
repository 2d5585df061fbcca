// The rendezvous: who is missing, who came twice, and what strangers on the port can do (nothing).
#include "ringgrad/distributed/rendezvous/rendezvous.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <openssl/hmac.h>

#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/rendezvous/handshake.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"
#include "ringgrad/tests/distributed/stranger.h"

namespace ringgrad::test::rendezvous_test {

namespace {

Address free_address() {
  const FileDescriptor listener = listen_tcp({"127.0.0.1", 0});
  return local_address(listener);
}

RendezvousOptions options_at(const Address& address, const std::string& secret, int milliseconds) {
  RendezvousOptions options;
  options.address = address;
  options.secret = secret;
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

RendezvousOptions options_for(int milliseconds = 5000) {
  return options_at(free_address(), "a secret", milliseconds);
}

struct Result {
  std::vector<std::string> values;
  std::string error;
};

// meet() of the given ranks, each in a thread of its own.
std::vector<Result> meet_all(const std::vector<int>& ranks, int size,
                             const RendezvousOptions& options) {
  std::vector<Result> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        results[i].values = meet(ranks[i], size, "value " + std::to_string(ranks[i]), options);
      } catch (const std::exception& e) {
        results[i].error = e.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool closed_by_peer(const FileDescriptor& socket) {
  std::byte byte;
  return contains(error_of([&] {
                    read_all(socket, {&byte, 1}, Deadline::after(std::chrono::seconds(7)), "peer");
                  }),
                  "broke");
}

}  // namespace

TEST_CASE("all ranks get all values", "[rendezvous][quick]") {
  const int size = GENERATE(1, 2, 4, 7);
  std::vector<int> ranks;
  std::vector<std::string> expected;
  for (int r = size - 1; r >= 0; --r) ranks.push_back(r);
  for (int r = 0; r < size; ++r) expected.push_back("value " + std::to_string(r));
  for (const Result& result : meet_all(ranks, size, options_for())) {
    REQUIRE(result.error.empty());
    REQUIRE(result.values == expected);
  }
}

TEST_CASE("missing ranks are named to all who came", "[rendezvous][quick]") {
  const auto results = meet_all({0, 2}, 4, options_for(150));
  for (const Result& result : results) {
    CAPTURE(result.error);
    REQUIRE(contains(result.error, "ranks 1, 3 of 4 have not joined within 0.15 s"));
  }
}

TEST_CASE("a rank whose rank 0 never comes names the address", "[rendezvous][quick]") {
  const auto options = options_for(50);
  const auto results = meet_all({1}, 2, options);
  REQUIRE(contains(results[0].error,
                   "rank 0 has not come: nobody answers at " + to_string(options.address)));
}

TEST_CASE("a process without a file to spare is told so, and not to wait", "[rendezvous][quick]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  const auto options = options_for(1000);
  setrlimit(RLIMIT_NOFILE, &none);
  const auto results = meet_all({1}, 2, options);
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(contains(results[0].error, "Too many open files; close files, or raise the limit"));
}

TEST_CASE("a name that is not known is asked for until the deadline", "[rendezvous][quick]") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string name(64, 'x');  // one letter too long for any name server
  const auto results = meet_all({1}, 2, options_at({name, 29400}, "a secret", 150));
  REQUIRE(contains(results[0].error, "cannot find host '" + name));
  REQUIRE(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(150));
}

TEST_CASE("who comes twice is told so at once, and the job goes on",
          "[rendezvous][quick][threads]") {
  const auto options = options_for();
  std::vector<Result> results;
  std::thread host([&] { results = meet_all({0}, 3, options); });
  std::atomic<int> refused = 0;
  std::atomic<int> joined = 0;
  std::string refusal;
  const auto rank_one = [&] {
    const std::string error = error_of([&] { meet(1, 3, "", options); });
    if (error.empty()) {
      ++joined;
    } else {
      refusal = error;
      ++refused;
    }
  };
  std::thread twin(rank_one);
  std::thread other_twin(rank_one);
  // The twin is refused before all ranks have come.
  while (refused == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  meet(2, 3, "", options);
  for (std::thread* thread : {&host, &twin, &other_twin}) thread->join();
  REQUIRE(joined == 1);
  REQUIRE(contains(refusal, "rank 1 has joined already: process " + std::to_string(getpid())));
  REQUIRE(results[0].error.empty());
}

TEST_CASE("ranks that disagree on the world size are named", "[rendezvous][quick][threads]") {
  const auto options = options_for();
  std::string zero;
  std::string one;
  std::thread host([&] { zero = error_of([&] { meet(0, 2, "", options); }); });
  one = error_of([&] { meet(1, 3, "", options); });
  host.join();
  for (const auto& error : {zero, one}) {
    CAPTURE(error);
    REQUIRE(contains(error, "rank 1 (process"));
    REQUIRE(contains(error, "belongs to a job of 3 ranks, rank 0 (process"));
    REQUIRE(contains(error, "to one of 2"));
  }
}

TEST_CASE("a port that is taken is called so", "[rendezvous][quick]") {
  const FileDescriptor owner = listen_tcp({"127.0.0.1", 0});
  const RendezvousOptions options = options_at(local_address(owner), "", 100);
  const std::string error = error_of([&] { meet(0, 2, "", options); });
  REQUIRE(contains(error, str("(process ", getpid(), "); choose another one")));
}

TEST_CASE("a rank that is dropped among strangers comes again", "[rendezvous][quick][threads]") {
  const RendezvousOptions options = options_for();
  FileDescriptor port = listen_tcp(options.address);
  std::optional<AdmittedPeer> admitted;
  std::jthread rank_0([&] {
    FileDescriptor(accept(port.get(), nullptr, nullptr)).reset();
    {
      std::vector<FileDescriptor> listeners;
      listeners.push_back(std::move(port));
      PeerListener listener(std::move(listeners), options.secret, 2);
      admitted = listener.next(Deadline::after(options.timeout));
    }
    // The port is closed first, so that the rank does not come a third time.
    if (admitted) admitted->socket.reset();
  });
  const std::string error = meet_all({1}, 2, options)[0].error;
  rank_0.join();
  CAPTURE(error);
  REQUIRE(admitted);
  REQUIRE(contains(error, "broke: end of stream"));
}

TEST_CASE("an address of another machine is called so", "[rendezvous][quick]") {
  const std::string error = error_of([&] {
    meet(0, 2, "", options_at({"192.0.2.1", 29400}, "a secret", 100));
  });
  REQUIRE(
      contains(error, "cannot listen on 192.0.2.1:29400: this machine does not have that address"));
}

TEST_CASE("rank 0 may be reached at an address that is not its machine's",
          "[rendezvous][quick][threads]") {
  RendezvousOptions translated = options_at({"192.0.2.1", free_address().port}, "a secret", 5000);
  translated.foreign = IfForeign::ListenOnAll;
  RendezvousOptions direct = translated;
  direct.address.host = "127.0.0.1";  // where the router would lead
  std::vector<Result> results;
  std::thread host([&] { results = meet_all({0}, 2, translated); });
  const auto values = meet(1, 2, "mine", direct);
  host.join();
  REQUIRE(results[0].values == values);

  translated.timeout = std::chrono::milliseconds(20);
  REQUIRE(
      contains(error_of([&] { meet(0, 2, "", translated); }), "where rank 0 listens as 0.0.0.0:"));
}

TEST_CASE("an address that others can reach needs a secret", "[rendezvous][quick]") {
  const RendezvousOptions options = options_at({"0.0.0.0", 0}, "", 50);
  REQUIRE(contains(error_of([&] { meet(0, 2, "", options); }), "the job needs a secret"));
  REQUIRE(contains(error_of([&] { meet(1, 2, "", options); }), "the job needs a secret"));
}

TEST_CASE("addresses of IPv6 need a secret unless they are this machine's own",
          "[rendezvous][quick]") {
  const auto error = [](const char* host) {
    return error_of([&] { meet(1, 2, "", options_at({host, 9}, "", 50)); });
  };
  REQUIRE(!contains(error("::1"), "the job needs a secret"));
  REQUIRE(contains(error("2001:db8::1"), "the job needs a secret"));
}

TEST_CASE("in the book alone, which has no networks, 127.0.0.1 needs no secret",
          "[rendezvous][quick]") {
  const Networks* const before = std::exchange(networks, nullptr);
  const std::string here = error_of([] { meet(1, 2, "", options_at({"127.0.0.1", 9}, "", 50)); });
  const std::string there = error_of([] { meet(1, 2, "", options_at({"127.0.0.2", 9}, "", 50)); });
  networks = before;
  CAPTURE(here, there);
  REQUIRE(contains(here, "rank 0 has not come"));
  REQUIRE(contains(there, "the job needs a secret"));
}

TEST_CASE("a rank that dies while others wait is named", "[rendezvous][quick][threads]") {
  const auto options = options_for();
  std::string error;
  std::thread host([&] { error = error_of([&] { meet(0, 3, "", options); }); });
  {
    const FileDescriptor socket = connect_tcp(options.address, soon());
    client_handshake(socket, {ConnectionPurpose::Rendezvous, 1, 3, "somebody\n"}, options.secret,
                     soon(), "rank 0");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  host.join();
  REQUIRE(contains(error, "rank 1 (somebody) died before all had joined"));
}

TEST_CASE("another secret is said on both sides", "[rendezvous][quick][threads]") {
  auto options = options_for(300);
  std::string zero;
  std::thread host([&] { zero = error_of([&] { meet(0, 2, "", options); }); });
  auto wrong = options;
  wrong.secret = "another secret";
  REQUIRE_THROWS_AS(meet(1, 2, "", wrong), OutOfStepError);
  const std::string one = error_of([&] { meet(1, 2, "", wrong); });
  host.join();
  REQUIRE(contains(one, "does not know this job's secret"));
  REQUIRE(contains(zero, "rank 1 of 2 has not joined"));
  REQUIRE(contains(zero, "a process at 127.0.0.1 came as rank 1 with another secret"));
}

TEST_CASE("without a secret no other user of this machine joins", "[rendezvous][quick][threads]") {
  if (geteuid() != 0) {
    WARN("only root can be somebody else: skipped");
    return;
  }
  const RendezvousOptions options = options_at(free_address(), "", 5000);
  int said[2];
  REQUIRE(pipe(said) == 0);
  const pid_t stranger = fork();
  if (stranger == 0) {
    // A stranger's own program, which does not care whose rank 0 is.
    const auto join_as_rank_one = [&] {
      const FileDescriptor socket = connect_tcp(options.address, soon());
      const ClientHello hello{0x68534752, 2, ConnectionPurpose::Rendezvous, 0, 1, 2, 0, {}};
      std::string said(reinterpret_cast<const char*>(&hello), sizeof hello);
      std::string nonce(sizeof(Nonce), '\0');
      std::string mac(sizeof(Mac), '\0');
      std::string reply(sizeof(ServerAnswer) + 200, '\0');
      pour(socket, said);
      read_all(socket, std::as_writable_bytes(std::span(nonce)), soon(), "rank 0");
      said = "client" + said + nonce;
      HMAC(EVP_sha256(), "", 0, reinterpret_cast<const unsigned char*>(said.data()), said.size(),
           reinterpret_cast<unsigned char*>(mac.data()), nullptr);
      pour(socket, mac);
      read_all(socket, std::as_writable_bytes(std::span(reply)), soon(), "rank 0");
    };
    std::string error = setuid(65534) == 0 ? "" : "setuid";
    error +=
        error_of(join_as_rank_one) + "\n" + error_of([&] { meet(1, 2, "I am rank 1", options); });
    (void)!write(said[1], error.data(), error.size());
    _exit(0);
  }
  std::vector<Result> results;
  std::thread host([&] { results = meet_all({0}, 2, options); });
  REQUIRE(waitpid(stranger, nullptr, 0) == stranger);
  const std::vector<Result> own = meet_all({1}, 2, options);
  host.join();
  char bytes[512];
  const std::string error(
      bytes, static_cast<size_t>(std::max<ssize_t>(0, read(said[0], bytes, sizeof bytes))));
  close(said[0]);
  close(said[1]);
  REQUIRE(contains(error, "the connection with rank 0 broke: end of stream\n"));
  REQUIRE(contains(error, to_string(options.address) + " does not belong to this job's user"));
  REQUIRE(own[0].error == "");
  REQUIRE(results[0].error == "");
  REQUIRE(results[0].values == own[0].values);
}

TEST_CASE("strangers neither join nor hold up the job", "[rendezvous][quick][threads]") {
  const auto options = options_for(60'000);
  std::vector<Result> results;
  std::thread host([&] { results = meet_all({0}, 2, options); });
  std::vector<FileDescriptor> silent;
  // More than are kept waiting.
  for (int i = 0; i < 100; ++i) silent.push_back(connect_tcp(options.address, soon()));
  const std::string http = "GET / HTTP/1.0\r\n\r\n" + std::string(200, 'x');
  for (int i = 0; i < 50; ++i) pour(connect_tcp(options.address, soon()), http);
  const FileDescriptor slow = connect_tcp(options.address, soon());
  pour(slow, "R");
  const FileDescriptor huge = connect_tcp(options.address, soon());
  ClientHello hello{0x68534752, 2, ConnectionPurpose::Rendezvous, 0, 1, 2, 0xffffffff, {}};
  pour(huge, std::string(reinterpret_cast<const char*>(&hello), sizeof hello));
  REQUIRE(closed_by_peer(huge));

  const auto begin = std::chrono::steady_clock::now();
  const auto values = meet(1, 2, "mine", options);
  // Each stranger may stay for 5.
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4));
  host.join();
  REQUIRE(results[0].error.empty());
  REQUIRE(results[0].values == values);
}

TEST_CASE("what others say steers no terminal, and hides nothing by its length",
          "[rendezvous][quick]") {
  REQUIRE(printable("größe ≤ 2\n\t\x1b[2J\x07\x9b \xc2\x9b\x7f \xe2\x82") ==
          "größe ≤ 2\n\t\\x1b[2J\\x07\\x9b \\xc2\\x9b\\x7f \\xe2\\x82");
  const Failure failure = failure_of(
      std::make_exception_ptr(Error("no model '" + std::string(5000, 'x') + "' here\x1b")));
  REQUIRE(failure.text == "no model '" + std::string(99, 'x') + "… (5003 characters) here\\x1b");
}

}  // namespace ringgrad::test::rendezvous_test
