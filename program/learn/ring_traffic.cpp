#include "ringgrad/program/learn/ring_traffic.h"

#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"

namespace ringgrad::program {

using nlohmann::json;

Messenger messenger(Transport& t, Operation operation, uint64_t count,
                    const SendObserver& observer) {
  Frame frame;
  frame.operation = operation;
  frame.sequence = t.ranks().position().frame.sequence + 1;
  frame.count = count;
  t.enter(frame);
  return Messenger(t, frame, Checksums::Off, {}, observer);
}

int32_t digit(int rank, int c) {
  int32_t n = c + 1;
  for (int i = 0; i < rank; ++i) n *= 10;
  return n;
}

std::string drawing(const char* title, const std::vector<std::vector<int>>& sent,
                    const std::vector<json>& has) {
  std::string text = fmt::format("{}\n", title);
  for (size_t r = 0; r < sent.size(); ++r) {
    std::vector<std::string> words;
    for (const int number : sent[r]) words.push_back(fmt::format("{:>4}", number));
    text += fmt::format("  rank {}  sends {:<24} has {}\n", r,
                        fmt::format("{}", fmt::join(words, ", ")), has[r].dump());
  }
  return text;
}

std::vector<std::vector<int>> numbers_sent(const std::vector<json>& answers) {
  std::vector<std::vector<int>> sent;
  for (const json& answer : answers) {
    sent.emplace_back();
    for (const json& message : answer["sent"]) sent.back().push_back(message["number"]);
  }
  return sent;
}

void check_traffic(const std::vector<json>& answers, size_t bytes, size_t segment) {
  const int size = static_cast<int>(answers.size());
  for (int r = 0; r < size; ++r) {
    size_t sum = 0;
    for (const json& message : answers[r]["sent"]) {
      if (const int to = message["to"]; to != (r + 1) % size)
        throw Wrong(fmt::format(
            "rank {} sent something to rank {}; in a ring of {} it sends to rank {} only", r, to,
            size, (r + 1) % size));
      const size_t piece = message["bytes"];
      sum += piece;
      if (piece > segment)
        throw Wrong(fmt::format("rank {} sent {} bytes in one message; a segment has at most {}", r,
                                piece, segment));
    }
    if (sum != bytes) throw Wrong(fmt::format("rank {} sent {} bytes, expected {}", r, sum, bytes));
  }
}

void check_killed_rank(Operation operation, uint64_t count,
                       const std::function<void(Messenger&, int rank)>& collective) {
  const auto results = run_forked_ranks(3, [&](std::unique_ptr<Transport> transport) -> json {
    Transport& t = *transport;
    int messages = 0;
    const SendObserver killer = [&](int, std::span<const std::byte>) {
      if (t.rank() == 1 && ++messages == 3) std::raise(SIGKILL);
    };
    auto own = messenger(t, operation, count, killer);
    collective(own, t.rank());
    return "returned";
  });
  for (const int r : {0, 2}) {
    const RankResult& result = results[r];
    if (!result.answer.is_null())
      throw Wrong(
          fmt::format("rank 1 was killed in the middle, "
                      "and rank {} returned as if nothing had happened, with wrong numbers; "
                      "what send() and recv() throw must reach the caller",
                      r));
    if (result.error.find("rank 1") == std::string::npos)
      throw Wrong(
          fmt::format("rank 1 was killed, and rank {} {}, expected an error that names rank 1", r,
                      result.error.empty() ? result.killed : "threw: " + result.error));
  }
}

}  // namespace ringgrad::program
