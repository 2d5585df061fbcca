// Bytes between ranks: order, sizes around every buffer, and what happens when a rank dies, leaves,
// hangs or fails.
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "ringgrad/distributed/point_to_point/message_matcher.h"
#include "ringgrad/distributed/shared_memory/shared_memory_peers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad::test::transport_test {

namespace {

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + seed * 17) & 0xff);
  return bytes;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

Frame barrier_frame(uint64_t sequence) {
  Frame frame;
  frame.sequence = sequence;
  return frame;
}

struct TestRequest final : PointToPointRequest {
  TestRequest(Transport& own, int to_or_from, bool sent, size_t size)
      : transport(own), bytes(size) {
    if (sent) bytes = pattern(size, 1);
    outgoing = sent;
    peer = to_or_from;
    frame = frame_of(size);
    payload = bytes;
  }
  static Frame frame_of(size_t size) {
    Frame frame;
    frame.operation = Operation::SendRecv;
    frame.count = size;
    return frame;
  }
  void arrive(int) noexcept override {
    others_under_way = matcher_of(transport).under_way();
    arrived = true;
  }
  void fail(std::exception_ptr) noexcept override {}
  Transport& transport;
  std::vector<std::byte> bytes;
  int others_under_way = -1;
  std::atomic<bool> arrived = false;
};

}  // namespace

TEST_CASE("bytes between all pairs arrive whole and in order", "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3, 5);
  run_ranks(size, channel, [&](Transport& t) {
    // Queues hold 512 KiB.
    const std::vector<size_t> sizes = {0, 1, 7, 4095, 4096, 4097, 100'000, 700'000};
    std::vector<std::vector<std::byte>> outgoing;
    std::vector<std::vector<std::byte>> incoming;
    std::vector<std::vector<std::byte>> expected;
    std::vector<Transfer> transfers;
    for (size_t n : sizes) {
      for (int peer = 0; peer < size; ++peer) {
        if (peer == t.rank()) continue;
        outgoing.push_back(pattern(n, t.rank() * 8 + peer));
        transfers.push_back(t.streams().send(peer, outgoing.back()));
        incoming.emplace_back(n);
        expected.push_back(pattern(n, peer * 8 + t.rank()));
        transfers.push_back(t.streams().recv(peer, incoming.back()));
      }
    }
    for (const Transfer& transfer : transfers) t.wait(transfer);
    if (incoming != expected) throw Error("received other bytes than were sent");
  });
}

TEST_CASE("a byte queue wraps around without losing a byte", "[transport][quick][threads]") {
  constexpr size_t kCapacity = 64;
  alignas(64) std::byte memory[ByteQueue::footprint(kCapacity)] = {};
  ByteQueue writer(memory, kCapacity);
  ByteQueue reader(memory, kCapacity);
  const auto sent = pattern(10'000, 1);
  std::vector<std::byte> received(sent.size());
  std::thread producer([&] {
    for (size_t done = 0; done < sent.size();) {
      const size_t n = writer.write(
          std::span(sent).subspan(done, std::min<size_t>(done % 97 + 1, sent.size() - done)));
      done += n;
      if (n == 0) std::this_thread::yield();
    }
  });
  for (size_t done = 0; done < received.size();) {
    const size_t n = reader.read(
        std::span(received).subspan(done, std::min<size_t>(done % 89 + 1, received.size() - done)));
    done += n;
    if (n == 0) std::this_thread::yield();
  }
  producer.join();
  REQUIRE(received == sent);
}

TEST_CASE("a rank that fails is named by all others, wherever it is in the ring",
          "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(in_process_transports(4, channel), [](Transport& t) {
    if (t.rank() == 2) {
      t.ranks().abort({FailureKind::Died, "rank 2 failed: bad batch"});
      throw Error("bad batch");
    }
    std::byte byte;
    // Ranks 0 and 1 wait for ranks that wait themselves.
    t.wait(t.streams().recv((t.rank() + 3) % 4, {&byte, 1}));
  });
  REQUIRE(errors[2] == "bad batch");
  for (int r : {0, 1, 3}) {
    CAPTURE(channel, r);
    REQUIRE(errors[r] == "rank 2 failed: bad batch");
  }
}

TEST_CASE("an exception that closes a rank's transport is no goodbye",
          "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(in_process_transports(3, channel), [](Transport& t) {
    if (t.rank() == 1) throw Error("out of luck");
    std::byte byte;
    t.wait(t.streams().recv(1 - t.rank() / 2, {&byte, 1}));
  });
  REQUIRE(contains(errors[0], "rank 1 failed"));
  REQUIRE(contains(errors[2], "rank 1 failed"));
}

TEST_CASE("a position that arrives damaged is a failure of the group", "[transport][quick]") {
  auto [own, others] = local_socket_pair();
  std::vector<ControlLink> controls(1);
  controls.emplace_back(std::move(own));
  FailureDetector ranks(0, std::move(controls));
  ControlLink rank1(std::move(others));
  const std::string text = std::string(kFrameBytes, 'x') + "\nbefore its first collective";
  REQUIRE(rank1.send({ControlKind::Position, {}, text}));
  const char* const words =
      "the position of rank 1 reached rank 0 as a damaged message header: "
      "it does not start with the magic number";
  REQUIRE_THROWS_WITH(ranks.attend(), words);
  REQUIRE(ranks.failure().has_value());
  REQUIRE_THROWS_WITH(ranks.check_failure(), words);
  const auto heard = rank1.receive();
  REQUIRE(heard.has_value());
  REQUIRE(heard->kind == ControlKind::Failed);
  REQUIRE(heard->text == words);
}

TEST_CASE("the reason that a rank gives comes before an interruption that follows from it",
          "[transport][quick]") {
  auto [own, others] = local_socket_pair();
  std::vector<ControlLink> controls(1);
  controls.emplace_back(std::move(own));
  FailureDetector ranks(0, std::move(controls));
  ControlLink rank1(std::move(others));
  const bool tells = GENERATE(true, false);
  if (tells) REQUIRE(rank1.send({ControlKind::Failed, FailureKind::OutOfStep, "the reason"}));
  ranks.interrupt({FailureKind::Died, "the parent has ended"});
  const std::string first = tells ? "the reason" : "the parent has ended";
  if (GENERATE(true, false))
    REQUIRE_THROWS_WITH(ranks.check_interrupt(), first);
  else
    ranks.say_goodbye();
  REQUIRE(ranks.failure()->text == first);
  REQUIRE(rank1.receive()->text == first);
}

TEST_CASE("a rank may leave when nobody needs it any more", "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::atomic<bool> gone = false;
  const auto errors = errors_of_ranks(in_process_transports(3, channel), [&](Transport& t) {
    std::byte byte{7};
    if (t.rank() == 2) return t.wait(t.streams().send(0, {&byte, 1}));
    if (t.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return t.wait(t.streams().send(0, {&byte, 1}));
    }
    t.wait(t.streams().recv(1, {&byte, 1}));  // rank 2 leaves during this wait
    t.wait(t.streams().recv(2, {&byte, 1}));  // and what it has sent is still there
    gone = true;
    t.wait(t.streams().recv(2, {&byte, 1}));
  });
  REQUIRE(gone);
  REQUIRE(contains(errors[0], "rank 2 has left the group"));
}

TEST_CASE("a deadline names the rank that is missing, and everybody learns it",
          "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::atomic<int> failed = 0;
  const auto errors = errors_of_ranks(in_process_transports(4, channel), [&](Transport& t) {
    t.enter(barrier_frame(t.rank() == 2 ? 16 : 17));
    if (t.rank() == 2) t.ranks().leave_collective();
    t.set_timeout(std::chrono::milliseconds(t.rank() == 0 ? 60 : 2000));
    if (t.rank() == 2) {  // computes, with a thread that answers; then comes too late
      while (failed < 3) {
        try {
          t.ranks().attend();
        } catch (const TimeoutError&) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      t.ranks().attend();
    }
    std::byte byte;
    try {
      t.wait(t.streams().recv((t.rank() + 3) % 4, {&byte, 1}));
    } catch (const TimeoutError&) {
      ++failed;
      throw;
    }
  });
  for (const auto& error : errors)
    REQUIRE(error ==
            "nothing moved for 0.06 s; rank 2 has not come to it: it is outside of collectives, "
            "its last one was barrier");
}

TEST_CASE("ranks that share a core wake once for a meeting, and not for each arrival",
          "[transport][quick][threads]") {
  constexpr int kRanks = 24;
  constexpr int kMeetings = 40;
  rusage before;
  rusage after;
  getrusage(RUSAGE_SELF, &before);
  run_ranks(kRanks, "shm", [](Transport& t) {
    for (uint64_t meeting = 1; meeting <= kMeetings; ++meeting) {
      memory_of(t).control_page(t.rank()).arrived.store(meeting);
      memory_of(t).ring_if_complete(&ControlPage::arrived, meeting);
      memory_of(t).wait_for_all(t, &ControlPage::arrived, meeting);
    }
  });
  getrusage(RUSAGE_SELF, &after);
  // It was up to 3.5 times as many.
  REQUIRE(after.ru_nvcsw - before.ru_nvcsw < kRanks * kMeetings * 3 / 2);
}

TEST_CASE("a message whose last bytes a collective takes along has left",
          "[transport][quick][threads]") {
  std::atomic<bool> begun = false;
  std::atomic<bool> arrived = false;
  run_ranks(2, "shm", [&](Transport& t) {
    const bool sends = t.rank() == 0;
    const auto request = std::make_shared<TestRequest>(t, 1 - t.rank(), sends, 700'000);
    t.set_spinning(false);
    matcher_of(t).post(request);
    int looks = 0;
    if (sends) move_messages_until(t, [&] { return ++looks > 2; });  // what a queue holds
    begun = begun || sends;
    while (!begun) std::this_thread::yield();
    while (sends && !arrived) t.push(1);
    move_messages_until(t, [&] { return matcher_of(t).under_way() == 0; });  // it timed out at once
    arrived = arrived || !sends;
    if (request->bytes != pattern(700'000, 1)) throw Error("received other bytes than were sent");
  });
}

TEST_CASE("a message is under way no more when its owner hears of its end, who may leave then",
          "[transport][quick][threads]") {
  run_ranks(2, "shm", [&](Transport& t) {
    const auto request = std::make_shared<TestRequest>(t, 1 - t.rank(), t.rank() == 0, 1000);
    matcher_of(t).post(request);
    move_messages_until(t, [&] { return request->arrived.load(); });
    if (request->others_under_way != 0) throw Error("it is still counted");
  });
}

TEST_CASE(
    "a rank that stops in the middle of a message is named, also where any rank might have sent it",
    "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::atomic<bool> failed = false;
  const auto errors = errors_of_ranks(in_process_transports(2, channel), [&](Transport& t) {
    if (t.rank() == 0) {
      Frame frame = TestRequest::frame_of(1000);
      frame.payload_bytes = 1000;
      const FrameBytes header = encode(frame);
      const auto half = pattern(500, 1);
      t.streams().send(1, header);
      t.wait(t.streams().send(1, half));
      while (!failed) {
        try {
          t.ranks().attend();
        } catch (const TimeoutError&) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return;
    }
    const auto request = std::make_shared<TestRequest>(t, kAnyRank, false, 1000);
    request->timeout = std::chrono::milliseconds(60);
    matcher_of(t).post(request);
    try {
      move_messages_until(t, [&] { return request->arrived.load(); });
    } catch (...) {
      failed = true;
      throw;
    }
  });
  CAPTURE(errors[1]);
  REQUIRE(contains(errors[1],
                   "nothing moved for 0.06 s in a send or receive; no data comes from rank 0"));
}

TEST_CASE("a rank that does not answer is called stopped", "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::atomic<bool> failed = false;
  const auto errors = errors_of_ranks(in_process_transports(2, channel), [&](Transport& t) {
    t.set_timeout(std::chrono::milliseconds(30));
    t.enter(barrier_frame(1));
    std::byte byte;
    if (t.rank() == 1) {
      while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      try {
        t.wait(t.streams().recv(1, {&byte, 1}));
      } catch (...) {
        failed = true;
        throw;
      }
    }
  });
  REQUIRE(contains(errors[0], "rank 1 does not answer: it is stopped, starved, or cut off"));
}

TEST_CASE("all calls fail with the first cause once a group has failed",
          "[transport][quick][threads]") {
  run_ranks(2, "shm", [](Transport& t) {
    if (t.rank() == 1) return;
    t.ranks().abort({FailureKind::OutOfStep, "first cause"});
    t.ranks().abort({FailureKind::Died, "second cause"});
    std::byte byte;
    for (int i = 0; i < 2; ++i) {
      try {
        t.wait(t.streams().recv(1, {&byte, 1}));
        throw Error("recv succeeded");
      } catch (const OutOfStepError& e) {
        if (e.what() != std::string("first cause")) throw;
      }
    }
  });
}

TEST_CASE("ranks that wait for each other in different collectives find out",
          "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(in_process_transports(2, channel), [](Transport& t) {
    Frame frame = barrier_frame(5);
    if (t.rank() == 1) {
      frame.operation = Operation::Broadcast;
      frame.root = 0;
      frame.count = 3;
    }
    t.enter(frame);
    std::byte byte;
    t.wait(t.streams().recv(1 - t.rank(), {&byte, 1}));
  });
  for (const auto& error : errors) {
    CAPTURE(error);
    REQUIRE(contains(error, "in barrier (collective 5)"));
    REQUIRE(contains(error, "in broadcast of 3 uint8, root 0 (collective 5)"));
  }
}

// A rank that goes to sleep in a collective looks at the others' control pages, and may do so in
// the middle of a change.
TEST_CASE("a control page that is just being written is no disagreement",
          "[transport][quick][threads]") {
  run_ranks(2, "shm", [](Transport& t) {
    t.enter(barrier_frame(5));
    std::byte byte{};
    if (t.rank() == 1) {
      Frame next = barrier_frame(6);
      next.operation = Operation::AllReduce;
      next.count = 64;
      uint64_t words[kFrameBytes / 8];
      std::memcpy(words, &next, kFrameBytes);
      ControlPage& own = memory_of(t).control_page(1);
      // The operation; the sequence, in another word, is still the old one.
      own.frame[0] = words[0];
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      t.wait(t.streams().send(0, {&byte, 1}));
    } else {
      t.wait(t.streams().recv(1, {&byte, 1}));
    }
  });
}

TEST_CASE("another thread can interrupt a wait", "[transport][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(in_process_transports(2, channel), [](Transport& t) {
    std::thread other;
    if (t.rank() == 0)
      other = std::thread([&] { t.interrupt({FailureKind::Died, "rank 0 was told to stop"}); });
    std::byte byte;
    try {
      t.wait(t.streams().recv(1 - t.rank(), {&byte, 1}));
    } catch (...) {
      if (other.joinable()) other.join();
      throw;
    }
  });
  REQUIRE(errors[0] == "rank 0 was told to stop");
  REQUIRE(errors[1] == "rank 0 was told to stop");
}

}  // namespace ringgrad::test::transport_test
