// Pairs of ranks do not reach each other: the right pairs must be named. All subsets of the links
// among two to four ranks are cut in the middle of their work.
#include <regex>
#include <set>

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::blame_test {

namespace {

using Pair = std::pair<int, int>;  // two ranks, the smaller one first

Pair pair_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

std::set<Pair> pairs_of(int size, unsigned subset) {
  std::set<Pair> pairs;
  for (int b = 0; b < size; ++b)
    for (int a = 0; a < b; ++a, subset >>= 1)
      if ((subset & 1) != 0) pairs.insert({a, b});
  return pairs;
}

// Returns the error of each rank in a collective that needs all links. Bytes that go into a cut
// link are lost, and nothing comes out of it.
std::vector<std::string> errors_with_cuts(int size, const std::set<Pair>& cut) {
  std::vector<std::vector<Link>> links(static_cast<size_t>(size));
  for (auto& row : links) row.resize(static_cast<size_t>(size));
  std::vector<Link> holes(2 * cut.size());
  size_t hole = 0;
  for (int b = 0; b < size; ++b)
    for (int a = 0; a < b; ++a) {
      if (!cut.contains({a, b})) {
        connect_pair(links[a][b], links[b][a], "tcp");
        continue;
      }
      connect_pair(links[a][b], holes[hole++], "tcp");
      connect_pair(links[b][a], holes[hole++], "tcp");
    }
  const auto deadline = Deadline::after(std::chrono::seconds(30));
  std::vector<std::unique_ptr<HostProcessGroup>> groups;
  for (int r = 0; r < size; ++r) {
    auto transport = std::make_unique<Transport>(r, std::move(links[r]), 1, deadline);
    transport->complete(deadline);
    HostOptions options;
    options.timeout = std::chrono::milliseconds(1500);
    groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
  }
  return errors_of_ranks(std::move(groups), [&](ProcessGroup& group) {
    const Tensor x = ones({size, 8});
    group.all_to_all(empty({size, 8}), x).wait();
    group.barrier().wait();
  });
}

// Says what is wrong with a rank's message; "" if nothing is.
std::string complaint(const std::string& said, const std::set<Pair>& cut) {
  static const std::regex kPair(
      "rank (\\d) and rank (\\d) do not reach each other; both reach rank (\\d)");
  static const std::regex kSilent("rank (\\d) does not answer");
  int named = 0;
  for (std::sregex_iterator it(said.begin(), said.end(), kPair), end; it != end; ++it, ++named) {
    const int a = std::stoi((*it)[1]);
    const int b = std::stoi((*it)[2]);
    const int third = std::stoi((*it)[3]);
    if (!cut.contains(pair_of(a, b))) return "names a pair that is connected";
    if (cut.contains(pair_of(a, third)) || cut.contains(pair_of(b, third)))
      return "names a witness that does not reach both";
  }
  for (std::sregex_iterator it(said.begin(), said.end(), kSilent), end; it != end; ++it, ++named) {
    const int silent = std::stoi((*it)[1]);
    const auto has = [&](const Pair& pair) {
      return pair.first == silent || pair.second == silent;
    };
    if (std::none_of(cut.begin(), cut.end(), has)) return "blames a rank that all reach";
  }
  return named > 0 ? "" : "names nobody";
}

void check_all_subsets(int size) {
  const unsigned subsets = 1u << (size * (size - 1) / 2);
  std::vector<std::vector<std::string>> errors(subsets);
  for (unsigned first = 0; first < subsets; first += 8) {
    std::vector<std::jthread> tries;
    for (unsigned s = first; s < std::min(first + 8, subsets); ++s)
      tries.emplace_back([&, s] { errors[s] = errors_with_cuts(size, pairs_of(size, s)); });
  }
  for (unsigned s = 0; s < subsets; ++s) {
    const std::set<Pair> cut = pairs_of(size, s);
    for (const std::string& said : errors[s]) {
      CAPTURE(size, s, said);
      if (cut.empty()) {
        CHECK(said == "");
        continue;
      }
      CHECK(complaint(said, cut) == "");
      if (cut.size() > 1 || size == 2) continue;
      const auto [a, b] = *cut.begin();
      CHECK(said.find(str("rank ", a, " and rank ", b, " do not reach each other; both reach")) !=
            std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("links that are cut among two and three ranks are named", "[blame][quick][threads]") {
  check_all_subsets(2);
  check_all_subsets(3);
}

TEST_CASE("links that are cut among four ranks are named", "[blame]") { check_all_subsets(4); }

}  // namespace ringgrad::test::blame_test
