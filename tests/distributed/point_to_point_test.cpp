// Sends and receives in any order, with tags, from any rank, beside each other and beside
// collectives.
#include <random>

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::point_to_point_test {

namespace {

HostOptions patient(std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
  HostOptions options;
  options.timeout = timeout;
  return options;
}

template <class Body>
void run(int size, const char* channel, Body body) {
  for (const std::string& error : errors_of_ranks(host_groups(size, channel, patient()), body))
    REQUIRE(error == "");
}

void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

bool is_full(const Tensor& x, double value) {
  for (const double item : to_vector<double>(x))
    if (item != value) return false;
  return true;
}

}  // namespace

TEST_CASE("both ranks receive first, and send then", "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int64_t count = GENERATE(0, 5, 3'000'000);  // the last one in several messages
  run(2, channel, [&](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const Tensor x = full({count}, -1);
    const Work received = group.recv(x, other, {.async = true});
    group.send(full({count}, group.rank()), other).wait();
    received.wait();
    must(received.done() && received.source() == other && is_full(x, other), "received");
  });
}

TEST_CASE("both ranks send first, more than a stream holds", "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3);  // to each other; in a circle
  run(size, channel, [&](ProcessGroup& group) {
    const int right = (group.rank() + 1) % size;
    const int left = (group.rank() + size - 1) % size;
    const Tensor x = empty({3'000'000});
    group.send(full({3'000'000}, group.rank()), right).wait();
    group.recv(x, left).wait();
    must(is_full(x, left), "received");
  });
}

TEST_CASE("a tag says which message is meant", "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  run(2, channel, [](ProcessGroup& group) {
    const auto x = [](double value) { return full({4}, value); };
    if (group.rank() == 0) {
      for (int tag = 3; tag > 0; --tag) group.send(x(tag), 1, {.tag = tag}).wait();
      for (int i = 0; i < 3; ++i) group.send(x(10 + i), 1).wait();
      return;
    }
    for (int tag = 1; tag <= 3; ++tag) {
      const Tensor y = x(0);
      group.recv(y, 0, {.tag = tag}).wait();
      must(is_full(y, tag), "by tag");
    }
    for (int i = 0; i < 3; ++i) {
      const Tensor y = x(0);
      group.recv(y, 0).wait();
      must(is_full(y, 10 + i), "in order");
    }
  });
}

TEST_CASE("a receive from any rank says which it was", "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const bool async = GENERATE(false, true);
  run(4, channel, [&](ProcessGroup& group) {
    if (group.rank() != 2) {
      group.send(full({7}, group.rank()), 2, {.tag = 1}).wait();
      return;  // and leaves, while others still send
    }
    int ranks = 0;
    for (int i = 0; i < 3; ++i) {
      const Tensor whole = empty({7, 2});
      const Tensor y = whole.as_strided({7}, {2}, 1);  // with gaps
      const Work work = group.recv(y, kAnyRank, {.async = async, .tag = 1});
      work.wait();
      must(is_full(y, work.source()), "what its source sent");
      ranks |= 1 << work.source();
    }
    must(ranks == 0b1011, "every rank once");
  });
}

TEST_CASE("messages and collectives do not wait for each other",
          "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int64_t count = GENERATE(100, 1'000'000);
  run(2, channel, [&](ProcessGroup& group) {
    const int rank = group.rank();
    const int other = 1 - rank;
    const CollectiveOptions async{.async = true};
    const auto all_reduce = [&] {
      const Tensor x = ones({count});
      group.all_reduce(x).wait();
      must(is_full(x, 2), "all_reduce");
    };
    const Tensor early = empty({count});
    const Tensor late = empty({count});
    const Tensor sum = ones({count});
    const Work first = group.recv(early, other, async);  // a collective before it comes
    all_reduce();
    group.send(full({count}, rank), other).wait();
    first.wait();
    must(is_full(early, other), "early");

    if (rank == 0) {  // one rank is in the collective while the other one needs a message from it
      const Work work = group.all_reduce(sum, ReduceOp::Sum, async);
      group.send(full({count}, 5), 1).wait();
      work.wait();
    } else {
      group.recv(late, 0).wait();
      must(is_full(late, 5), "late");
      group.all_reduce(sum).wait();
    }
    must(is_full(sum, 2), "beside a message");

    // There before it is asked for.
    const Work sent = group.send(full({count}, rank + 8), other, async);
    all_reduce();
    group.broadcast(sum, 1).wait();
    group.recv(late, other).wait();
    must(is_full(late, other + 8), "kept");
    sent.wait();
  });
}

TEST_CASE("many messages in many orders, among collectives", "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = 3;
  const int messages = 40;
  run(size, channel, [&](ProcessGroup& group) {
    const int rank = group.rank();
    std::mt19937 random(static_cast<unsigned>(rank));
    struct SentMessage {
      int from;
      int to;
      int tag;
    };
    std::vector<SentMessage> own;
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to)
        for (int tag = 0; tag < messages; ++tag)
          if (from != to && (from == rank || to == rank)) own.push_back({from, to, tag});
    std::shuffle(own.begin(), own.end(), random);
    std::vector<std::pair<Tensor, SentMessage>> received;
    std::vector<Work> work;
    const auto content = [](const SentMessage& l) { return l.from * 10'000 + l.to * 1000 + l.tag; };
    const Tensor sum = ones({5000});
    for (size_t i = 0; i < own.size(); ++i) {
      const SentMessage& l = own[i];
      const CollectiveOptions options{.async = true, .tag = l.tag};
      const int64_t count = 1 + l.tag * 1000;
      if (l.from == rank) {
        work.push_back(group.send(full({count}, content(l)), l.to, options));
      } else {
        received.emplace_back(empty({count}), l);
        work.push_back(group.recv(received.back().first, l.from, options));
      }
      if (i % 20 == 0) group.all_reduce(sum, ReduceOp::Max, {.async = i % 40 == 0});
    }
    for (const Work& w : work) w.wait();
    for (const auto& [x, sent] : received) must(is_full(x, content(sent)), "a message's content");
    group.barrier().wait();
  });
}

TEST_CASE("a message of another shape or dtype is an error that names both",
          "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(host_groups(2, channel, patient()), [](ProcessGroup& group) {
    if (group.rank() == 0) group.send(ones({2, 3}), 1, {.tag = 4}).wait();
    if (group.rank() == 1) group.recv(ones({3, 2}), 0, {.tag = 4}).wait();
    group.barrier().wait();
  });
  for (const std::string& error : errors) {
    CAPTURE(error);
    REQUIRE(error.find("rank 1 is in send/recv of [3, 2] float32, tag 4") != std::string::npos);
    REQUIRE(error.find("rank 0 in send/recv of [2, 3] float32, tag 4") != std::string::npos);
  }
}

TEST_CASE("whoever waits for a message learns that it cannot come",
          "[point_to_point][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int end = GENERATE(0, 1, 2, 3);
  const auto options = patient(std::chrono::milliseconds(end == 3 ? 100 : 5000));
  const auto errors = errors_of_ranks(host_groups(3, channel, options), [&](ProcessGroup& group) {
    const Tensor x = ones({3});
    if (group.rank() == 0) {
      const Work work = group.recv(x, 1, {.async = true});
      if (end == 2) group.barrier().wait();
      work.wait();
    } else if (group.rank() == 1) {
      if (end == 0) return;
      if (end == 1) throw Error("no more");
      if (end == 2) group.abort("enough");
    } else if (end == 2) {
      group.barrier().wait();
    }
    if (end == 3) std::this_thread::sleep_for(std::chrono::seconds(2));  // so that it is asked
  });
  CAPTURE(errors[0]);
  const char* why[] = {"rank 1 has left the group", "rank 1 failed with an exception", "enough",
                       "nothing moved for 0.1 s in a send or receive; no data comes from rank 1"};
  REQUIRE(errors[0].find(why[end]) != std::string::npos);
}

TEST_CASE("work that is under way ends with its group", "[point_to_point][quick][threads]") {
  auto groups = host_groups(2, GENERATE(from_range(channel_names())), patient());
  const Work work = groups[0]->recv(ones({3}), 1, {.async = true});
  groups.clear();
  REQUIRE_THROWS_AS(work.wait(), DistributedError);
}

}  // namespace ringgrad::test::point_to_point_test
